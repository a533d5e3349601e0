"""Keeping memory from one step to the next, where the C library would hand it back.

A step on a CPU makes large tensors and drops them again. glibc gives blocks of more than 32 MB back
to the system at once, and gets them anew for the next step, page by page and filled with noughts:
that can take several times as long as the convolution that then writes on them.
"""

from __future__ import annotations

import ctypes
import os
import sys

# Of glibc's malloc.h.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT = 1 << 30  # bytes: larger blocks, and more than this left at the end, still go back


def keep_memory() -> bool:
    """Let the process keep what it frees; say whether that could be arranged.

    Only glibc is asked, and only where the user has not set it up otherwise by its own variables.
    """
    own = [name for name in os.environ if name.startswith("MALLOC_") or name == "GLIBC_TUNABLES"]
    if sys.platform != "linux" or own:
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # another C library
        return False
    return all(mallopt(what, KEPT) == 1 for what in (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD))
