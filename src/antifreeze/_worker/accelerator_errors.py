"""Accelerators in a process that was forked beside their context: it cannot use them itself.

Each library says so in words of its own, and by exceptions of its own. What tells is the text, and
that this process has inherited a context: a program without one may quote whatever it likes.
"""

from __future__ import annotations

import contextlib
import re
import sys

from .._linux.open_descriptors import own_descriptors, own_target

# What is raised in such a process, and who raises it. A process that has not forked may see the
# errors of a driver as well, for other reasons: then they come again in a clean process, and are
# raised there.
_TEXTS = (
    # torch (cuda, xpu, mtia) and the backends made after it (torch_npu, torch_musa): `_lazy_init`
    # of each.
    r"Cannot re-initialize \w+ in forked subprocess",
    # numba.cuda.cudadrv.driver: CudaDriverError, where it notices the fork.
    r"CUDA initialized before forking",
    # Names of code 3, as libraries show them: cupy ("cudaErrorInitializationError: initialization
    # error", "CUDA_ERROR_NOT_INITIALIZED: ..."; for ROCm those of HIP), numba ("Call to cuInit
    # results in ..."), RMM and cuDF (a MemoryError: "CUDA error at: ...: ..."), jax ("operation
    # gpuDeviceGetAttribute failed: ..."), TensorFlow ("Failed setting context: ..."), DALI.
    r"\b(?:cudaErrorInitializationError|CUDA_ERROR_NOT_INITIALIZED)\b",
    r"\b(?:hipErrorInitializationError|hipErrorNotInitialized)\b",
    # The words for it: torch ("CUDA error: ...", "CUDA error (3): ...", "cuda runtime error (3) :
    # ..."; for ROCm "HIP error: ..."), Triton ("Triton Error [CUDA]: ..."), decord and MXNet
    # ("CUDA: ..."), ONNX Runtime ("CUDA failure 3: ..."), Paddle ("CUDA error(3), ...").
    r"\b(?:CUDA|cuda|Cuda|HIP)\b[^\n]{0,24}\binitialization error\b",
    # PyCUDA: "cuInit failed: ...".
    r"\bcu[A-Z]\w* failed: initialization error\b",
)
_ANY = re.compile("|".join(_TEXTS))
# Modules of torch, where they are there.
_DEVICES = ("cuda", "xpu", "hpu", "mtia", "npu", "mlu", "musa")
# Opened by whoever begins to use the device: of NVIDIA (NVML, which tools ask, does not open it),
# the same in WSL and on Jetson, of AMD, Intel, Ascend, Habana and Cambricon.
_FILES = (
    *("/dev/nvidia-uvm", "/dev/dxg", "/dev/nvhost-", "/dev/nvgpu", "/dev/kfd", "/dev/dri/render"),
    *("/dev/davinci", "/dev/hl", "/dev/accel/", "/dev/cambricon"),
)


def says_fork(text: str) -> bool:
    """Whether an error reads as that of an accelerator which a forked process cannot use."""
    return _ANY.search(text) is not None


def context_of_torch() -> str:
    """Name the accelerator that this process has a context of, by torch."""
    for name in _DEVICES:
        module = sys.modules.get(f"torch.{name}")
        if module is not None and getattr(module, "_initialized", False):
            return name
    return ""


def is_beside_context() -> bool:
    """Whether this process was forked from one that has used an accelerator, by whatever library:
    it has inherited what that had open. Takes some microseconds for each descriptor."""
    return bool(context_of_torch()) or _is_bad_fork_of_torch() or _has_device_open()


def _is_bad_fork_of_torch() -> bool:
    modules = [sys.modules.get(f"torch.{name}") for name in _DEVICES]
    for module in modules:
        with contextlib.suppress(Exception):  # of a backend that is not built in
            if module is not None and module._is_in_bad_fork():
                return True
    return False


def _has_device_open() -> bool:
    with contextlib.suppress(OSError):
        for number in own_descriptors():
            with contextlib.suppress(OSError):  # that of the list itself
                if own_target(number).startswith(_FILES):
                    return True
    return False
