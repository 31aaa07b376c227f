"""Thread pools of native libraries at a fork: a child inherits the record of them, not the threads.

The pool of GNU OpenMP (torch, scikit-learn) that was used before a fork hangs the child that uses
it, for ever. So it is laid down before the fork; whoever needs it next makes it anew, on both
sides. So is OpenCV's, which a child could not make smaller. Others need nothing: OpenBLAS, MKL and
Intel's OpenMP look after themselves at a fork.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import sys

_LIBRARY = re.compile(rb"\s(/\S*libgomp\S*\.so[^\s]*)$", re.MULTILINE)
_HARD = 2  # omp_pause_hard: give back the threads and what they hold


def lay_down() -> None:
    """Have OpenCV's pool end, and the OpenMP pools of the calling thread, which is the one that the
    child will have.

    Never waits for work: a thread that is inside a parallel region of its own cannot call this.
    """
    if (opencv := sys.modules.get("cv2")) is not None:
        threads = opencv.getNumThreads()
        opencv.setNumThreads(1)  # in a child it would wait for threads that are not there
        opencv.setNumThreads(threads)
    with open("/proc/self/maps", "rb") as maps:
        paths = set(_LIBRARY.findall(maps.read()))
    for path in paths:
        if (pause := _pause(path)) is not None:
            pause(_HARD)


@functools.cache
def _pause(path: bytes) -> ctypes._NamedFuncPointer | None:
    try:
        library = ctypes.CDLL(os.fsdecode(path), mode=os.RTLD_NOLOAD)
        return library.omp_pause_resource_all
    except (OSError, AttributeError):  # unloaded meanwhile, or from before OpenMP 5.0
        return None
