"""What a process of the hub asks of the C library, so that it gives memory back that a rush of requests took."""

from __future__ import annotations

import ctypes
import sys

_M_ARENA_MAX = -8  # of malloc.h
_MAX_ARENAS = 2


def keep_few_arenas() -> None:
    """To be called before there are threads. glibc gives each thread a heap of its own, up to eight a core, and keeps
    in each what was once used: here 10 MiB after lists of ten thousand environments. Python's lock leaves the threads
    little to wait for at two. Does nothing where the C library is another one."""
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # musl has none, and no arenas
        mallopt(_M_ARENA_MAX, _MAX_ARENAS)
