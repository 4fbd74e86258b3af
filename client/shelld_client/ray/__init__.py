"""Provides a pool of daemons on a Ray cluster.

Needs the extra ``ray``. No other package imports this package. Each Ray actor runs one daemon. Ray
decides where the actors run, and manages their resources. The pool decides on which of its daemons
a session starts. The session then stays on this daemon.
"""

try:
    import ray as _ray  # pyright: ignore[reportMissingImports, reportUnusedImport]  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "a pool needs the extra 'ray': pip install 'shelld[ray]'", name=error.name
    ) from error

from shelld_client.ray.mapping import Results
from shelld_client.ray.pool import Load, Pool
from shelld_client.ray.session import Session

__all__ = ["Load", "Pool", "Results", "Session"]
