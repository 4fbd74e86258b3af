"""Lists the errors after which a descriptor can still be used. The same system call may succeed
later.

The list is in this package because the keeper imports nothing from the rest of the daemon.
"""

from __future__ import annotations

import errno
from typing import Final

TRANSIENT: Final = frozenset({errno.EAGAIN, errno.EINTR, errno.ENOMEM, errno.ENOBUFS})
