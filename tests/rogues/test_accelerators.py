"""Accelerators in forked workers: errors of libraries besides torch, by stand-ins for them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from antifreeze import DataLoader
from antifreeze._core.fork_or_clean import WorkerOrigin
from antifreeze._processes.starting import start_method
from antifreeze._worker import accelerator_errors
from antifreeze._worker.error_notes import needed_no_fork, needs_no_fork

from .parked import wait_until_parked

SAMPLES = 16


@pytest.fixture(autouse=True)
def no_earlier_loaders() -> None:
    """Forget what loaders of the same datasets have met."""
    start_method._unfit.clear()


@pytest.fixture(autouse=True)
def no_earlier_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_method, "_stuck", [])


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have this process seem to have a context, of a library that torch knows nothing of."""
    device = tmp_path / "nvidia-uvm"
    monkeypatch.setattr(accelerator_errors, "_FILES", (str(device),))
    with device.open("w"):
        yield


def named(name: str, base: type[Exception]) -> type[Exception]:
    """Return a class of exceptions that stands for a library's."""
    made: type[Exception] = type(name, (base,), {"__module__": __name__})
    globals()[name] = made
    return made


# As libraries raise them: torch/{cuda,xpu,mtia}/__init__.py and torch_npu/npu/__init__.py; torch,
# issues 2517, 17357, 21092; cupy_backends/cuda/api/{runtime,driver}.pyx; numba, cudadrv/driver.py;
# PyCUDA, issue 137; cuDF (RMM), issue 5515; jax, issue 20711; decord, issue 159; MXNet, issue
# 19291; Paddle, issue 31371. Of TensorFlow, ONNX Runtime, DALI, Triton and HIP as their users quote
# them.
RAISED = [
    (RuntimeError, "Cannot re-initialize CUDA in forked subprocess. To use CUDA with ..."),
    (RuntimeError, "Cannot re-initialize XPU in forked subprocess. To use XPU with ..."),
    (RuntimeError, "Cannot re-initialize MTIA in forked subprocess. To use MTIA with ..."),
    (RuntimeError, "Cannot re-initialize NPU in forked subprocess. To use NPU with ..."),
    (
        RuntimeError,
        "CUDA error: initialization error\nCUDA kernel errors might be asynchronously ...",
    ),
    (RuntimeError, "CUDA error (3): initialization error"),
    (
        RuntimeError,
        "cuda runtime error (3) : initialization error at ../torch/csrc/cuda/Module.cpp:33",
    ),
    (RuntimeError, "HIP error: initialization error"),
    (RuntimeError, "Triton Error [CUDA]: initialization error"),
    (
        named("CUDARuntimeError", RuntimeError),
        "cudaErrorInitializationError: initialization error",
    ),
    (named("HIPRuntimeError", RuntimeError), "hipErrorNotInitialized: initialization error"),
    (
        named("CUDADriverError", RuntimeError),
        "CUDA_ERROR_NOT_INITIALIZED: initialization error",
    ),
    (named("CudaDriverError", Exception), "CUDA initialized before forking"),
    (
        named("CudaAPIError", Exception),
        "[3] Call to cuDeviceGetCount results in CUDA_ERROR_NOT_INITIALIZED",
    ),
    (named("LogicError", Exception), "cuInit failed: initialization error"),
    (
        MemoryError,
        "std::bad_alloc: CUDA error at: rmm/mr/device/cuda_memory_resource.hpp66:"
        " cudaErrorInitializationError initialization error",
    ),
    (
        named("XlaRuntimeError", RuntimeError),
        "INTERNAL: operation gpuGetDeviceCount(&device_count) failed: CUDA_ERROR_NOT_INITIALIZED",
    ),
    (
        named("InternalError", Exception),
        "Failed setting context: CUDA_ERROR_NOT_INITIALIZED: initialization error",
    ),
    (
        named("DECORDError", Exception),
        "[22:45:27] /decord/src/video/nvcodec/cuda_stream.cc:20: Check failed: e == cudaSuccess ||"
        " e == cudaErrorCudartUnloading CUDA: initialization error at line: 20",
    ),
    (
        RuntimeError,
        "CUDA runtime API error cudaErrorInitializationError (3):\ninitialization error",
    ),
    (
        named("ORTException", Exception),
        "CUDA failure 3: initialization error ; GPU=0 ; hostname=a ; expr=cudaSetDevice(0);",
    ),
    (OSError, "(External) CUDA error(3), initialization error. \n  [Hint: 'cudaErrorInitializ..."),
]
# What programs without an accelerator raise, or with one about something else.
OTHERS = [
    (RuntimeError, "initialization error"),
    (RuntimeError, "sqlite: initialization error"),
    (RuntimeError, "relationship: initialization error"),
    (RuntimeError, "worker failed in forked subprocess"),
    (RuntimeError, "Cannot re-initialize the database in forked subprocess"),
    (RuntimeError, "CUDA error: out of memory"),
    (RuntimeError, "CUDA error: device-side assert triggered"),
    (RuntimeError, "No CUDA GPUs are available"),
    (AssertionError, "Torch not compiled with CUDA enabled"),
    (RuntimeError, "Found no NVIDIA driver on your system."),
    (RuntimeError, "cudaErrorNoDevice: no CUDA-capable device is detected"),
    (RuntimeError, "cuInit failed: unknown error"),
    (ValueError, "CUDA is not used here.\nAfter that there was an initialization error"),
    (KeyError, "cuda"),
]


def id_of(value: Any) -> str:
    return value.__name__ if isinstance(value, type) else str(value)[:40]


@pytest.mark.parametrize(("kind", "text"), RAISED, ids=id_of)
@pytest.mark.usefixtures("context")
def test_errors_of_a_forked_process_are_known_by_their_text(
    kind: type[Exception], text: str
) -> None:
    assert needs_no_fork(kind(text))
    wrapped = ValueError("sample 3 is bad")
    wrapped.__cause__ = kind(text)
    assert needs_no_fork(wrapped)
    assert needed_no_fork(
        f"Traceback (most recent call last):\n  File ...\n{kind.__name__}: {text}"
    )


@pytest.mark.parametrize(("kind", "text"), OTHERS, ids=id_of)
@pytest.mark.usefixtures("context")
def test_other_errors_are_not_taken_for_them(kind: type[Exception], text: str) -> None:
    assert not needs_no_fork(kind(text))
    assert not needed_no_fork(f"{kind.__name__}: {text}")


@pytest.mark.parametrize(("kind", "text"), RAISED, ids=id_of)
def test_without_a_context_they_are_errors_like_any_other(kind: type[Exception], text: str) -> None:
    assert not accelerator_errors.is_beside_context()
    assert not needs_no_fork(kind(text))


@pytest.mark.usefixtures("context")
def test_code_that_quotes_such_an_error_is_none() -> None:
    quoted = f'  File "data.py", line 7\n    raise ValueError("x")  # {RAISED[0][1]}\n'
    assert not needed_no_fork(f"Traceback (most recent call last):\n{quoted}ValueError: x")


class Odd(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError


@pytest.mark.usefixtures("context")
def test_an_error_that_cannot_be_shown_is_none() -> None:
    assert not needs_no_fork(Odd())


def test_what_torch_knows_of_a_context_counts_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (
        accelerator_errors.context_of_torch() == "" and not accelerator_errors.is_beside_context()
    )
    # As after `torch.cuda.device_count()`, which leaves no context that torch speaks of.
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: True)
    assert accelerator_errors.context_of_torch() == "" and accelerator_errors.is_beside_context()
    monkeypatch.undo()
    monkeypatch.setattr(torch.cuda, "_initialized", True)
    assert (
        accelerator_errors.context_of_torch() == "cuda" and accelerator_errors.is_beside_context()
    )


# ---- real workers --------------------------------------------------------------------------------


def is_fork_of_program() -> bool:
    names = [each.name() for each in psutil.Process().parents()]
    return not any(name.startswith("af_clean") for name in names)


class Uses:
    """A dataset that uses an accelerator, by some library."""

    def __init__(self, kind: type[Exception], text: str, *, always: bool = False) -> None:
        self.kind, self.text, self.always = kind, text, always

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> int:
        if index >= 6 and (self.always or is_fork_of_program()):
            self.use()
        return index

    def use(self) -> None:
        try:
            raise self.kind(self.text)
        except Exception as error:
            raise ValueError("the sample cannot be decoded") from error


def loader_of(dataset: Any, **options: Any) -> DataLoader[Any]:
    return DataLoader(dataset, 4, num_workers=2, **options)


def numbers(loader: DataLoader[Any]) -> list[int]:
    return [int(each) for batch in loader for each in batch]


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


@pytest.mark.usefixtures("context")
@pytest.mark.parametrize("options", [{}, {"on_error": "skip"}])
@pytest.mark.parametrize(
    ("kind", "text"), [each for each in RAISED if each[0] is not RuntimeError][:6], ids=id_of
)
def test_workers_that_use_it_by_another_library_are_made_anew(
    kind: type[Exception], text: str, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    loader = loader_of(Uses(kind, text), **options)
    assert numbers(loader) == list(range(SAMPLES))
    assert loader._lineage().choice.descent is WorkerOrigin.CLEAN_PROCESS
    assert loader.faults == []
    (said,) = warned(caplog)
    assert "uses an accelerator, which a forked process cannot" in said


@pytest.mark.parametrize("parked", [False, True])
def test_without_a_context_a_quoted_error_stays_the_datasets(
    parked: bool, caplog: pytest.LogCaptureFixture
) -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    if parked:  # then workers could be made anew, for another reason
        thread.start()
        wait_until_parked(thread)
    try:
        loader = loader_of(Uses(*RAISED[0], always=True))
        with pytest.raises(ValueError, match="the sample cannot be decoded") as caught:
            numbers(loader)
        assert not any("accelerator" in note for note in caught.value.__notes__)
        assert loader._lineage().choice.descent is WorkerOrigin.MAIN
        assert warned(caplog) == []
    finally:
        done.set()
        if parked:
            thread.join()


@pytest.mark.usefixtures("context")
def test_what_a_clean_process_raises_as_well_is_raised() -> None:
    loader = loader_of(Uses(*RAISED[0], always=True))
    with pytest.raises(ValueError, match="the sample cannot be decoded"):
        numbers(loader)
    assert loader._lineage().choice.descent is WorkerOrigin.CLEAN_PROCESS
