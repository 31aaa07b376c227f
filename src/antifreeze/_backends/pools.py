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
from typing import Any

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
    for path in _loaded():
        if b"libgomp" in os.path.basename(path) and (pause := _pause(path)) is not None:
            pause(_HARD)


class _Library(ctypes.Structure):
    _fields_ = (("address", ctypes.c_void_p), ("path", ctypes.c_char_p))  # and more


_Visit = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Library), ctypes.c_size_t, ctypes.c_void_p)
# It calls back with the linker's lock held. So the interpreter must not be let go meanwhile: a
# thread that imports something holds the interpreter and waits for that lock.
_libc = ctypes.PyDLL(None)


def _loaded() -> list[bytes]:
    """Give the paths of this process's libraries: 50 us; to read /proc/self/maps takes 1 ms."""
    paths: list[bytes] = []

    def visit(library: Any, size: int, given: None) -> int:
        paths.append(library.contents.path)
        return 0

    _libc.dl_iterate_phdr(_Visit(visit), None)
    return paths


def blas_threads() -> int:
    """Count the threads that OpenBLAS keeps beside the one that calls it, used or not."""
    return sum(max(0, count.value - 1) for count in _blas_counts("blas_num_threads"))


def one_blas_thread() -> None:
    """Have OpenBLAS use one thread in this forked process.

    Not by its own function: here that starts all of its threads first, and where this fails it
    interrupts the program.
    """
    for count in _blas_counts("blas_cpu_number"):
        count.value = 1


def _blas_counts(name: str) -> list[ctypes.c_int]:
    paths = [path for path in _loaded() if b"openblas" in os.path.basename(path)]
    found = [_blas_count(path, name) for path in paths]
    return [count for count in found if count is not None]


@functools.cache
def _blas_count(path: bytes, name: str) -> ctypes.c_int | None:
    """Give a number that an OpenBLAS exports: of the threads it has, or of those it uses."""
    try:
        library = ctypes.CDLL(os.fsdecode(path), mode=os.RTLD_NOLOAD)
        return ctypes.c_int.in_dll(library, name)
    except (OSError, ValueError):  # unloaded meanwhile, or built otherwise
        return None


@functools.cache
def _pause(path: bytes) -> ctypes._NamedFuncPointer | None:
    try:
        library = ctypes.CDLL(os.fsdecode(path), mode=os.RTLD_NOLOAD)
        return library.omp_pause_resource_all
    except (OSError, AttributeError):  # unloaded meanwhile, or from before OpenMP 5.0
        return None
