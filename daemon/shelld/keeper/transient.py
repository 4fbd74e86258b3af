"""The errors of a system call that say nothing about the descriptor.

The same call may succeed later.
Here because the keeper imports nothing from above.
"""

from __future__ import annotations

import errno
from typing import Final

TRANSIENT: Final = frozenset({errno.EAGAIN, errno.EINTR, errno.ENOMEM, errno.ENOBUFS})
