"""Thread pools of native libraries at a fork: a child inherits the record of them, not the threads.

The pool of GNU OpenMP (torch, scikit-learn) that was used before a fork hangs the child that uses
it, for ever. So it is laid down before the fork; whoever needs it next makes it anew, on both
sides. So is OpenCV's, which a child could not make smaller. Others look after themselves at a fork:
OpenBLAS, MKL and Intel's OpenMP.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys

from ..._linux.memory_maps import own_libraries

_blas_of_fork: list[ctypes.c_int] = []  # found before the fork: to look again takes a child 4 ms
_HARD = 2  # omp_pause_hard: give back the threads and what they hold


def lay_down() -> None:
    """Have OpenCV's pool end, and the OpenMP pools of the calling thread, which is the one that the
    child will have.

    Never waits for work: a thread that is inside a parallel region of its own cannot call this.
    """
    global _blas_of_fork
    if (opencv := sys.modules.get("cv2")) is not None:
        threads = opencv.getNumThreads()
        opencv.setNumThreads(1)  # in a child it would wait for threads that are not there
        opencv.setNumThreads(threads)
    loaded = own_libraries()
    _blas_of_fork = _blas_counts("blas_cpu_number", loaded)
    for path in loaded:
        if "libgomp" in os.path.basename(path) and (pause := _pause(path)) is not None:
            pause(_HARD)


def ends_children() -> bool:
    """Whether a library here ends the direct children of this process that use it, but not their
    children: numba's layer on GNU OpenMP, once used (measured with numba 0.68).

    It compares the parent's number with that of the process that started its pool, and raises
    SIGTERM. Where `lay_down` has ended the pool there is nothing to fear.
    """
    parallel = sys.modules.get("numba.np.ufunc.parallel")
    return getattr(parallel, "_threading_layer", None) == "omp"


def blas_threads() -> int:
    """Count the threads that OpenBLAS keeps beside the one that calls it, used or not."""
    return sum(
        max(0, count.value - 1) for count in _blas_counts("blas_num_threads", own_libraries())
    )


def one_blas_thread() -> None:
    """Have OpenBLAS use one thread in this forked process, whose parent has called `lay_down`.

    Not by its own function: here that starts all of its threads first, and where this fails it
    interrupts the program.
    """
    for count in _blas_of_fork:
        count.value = 1


def _blas_counts(name: str, loaded: set[str]) -> list[ctypes.c_int]:
    paths = [path for path in loaded if "openblas" in os.path.basename(path)]
    found = [_blas_count(path, name) for path in paths]
    return [count for count in found if count is not None]


@functools.cache
def _blas_count(path: str, name: str) -> ctypes.c_int | None:
    """Give a number that an OpenBLAS exports: of the threads it has, or of those it uses."""
    try:
        library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD)
        return ctypes.c_int.in_dll(library, name)
    except (OSError, ValueError):  # unloaded meanwhile, or built otherwise
        return None


@functools.cache
def _pause(path: str) -> ctypes._NamedFuncPointer | None:
    try:
        library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD)
        return library.omp_pause_resource_all
    except (OSError, AttributeError):  # unloaded meanwhile, or from before OpenMP 5.0
        return None
