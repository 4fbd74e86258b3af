"""System call errors that say nothing about the descriptor: the same call may succeed later.

Defined here because the keeper imports nothing from the rest of the daemon.
"""

from __future__ import annotations

import errno
from typing import Final

TRANSIENT: Final = frozenset({errno.EAGAIN, errno.EINTR, errno.ENOMEM, errno.ENOBUFS})
