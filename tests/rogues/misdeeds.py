"""Every phase of a worker's life, and every way to misbehave in it: the rogues of the matrix."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

import torch

SAMPLES, BATCH, AT = 12, 3, 5  # sample 5 is the one; it is in batch 1
FLOATS = 8192  # of a sample: a batch of them is collated straight into its slab
LONG_S = 120.0  # of a hang, or the life of a grandchild, if nobody ends it


class Deed:
    """Misbehaves in one way: once in all processes together, or each time."""

    def __init__(self, way: str, folder: Path, *, once: bool = True) -> None:
        self.way, self.folder, self.once = way, folder, once
        self.main_pid = os.getpid()

    def __call__(self) -> None:
        """Do it, but not in the process that made this."""
        if os.getpid() == self.main_pid:
            return
        try:
            os.close(os.open(self.folder / "done", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            if self.once:
                return
        WAYS[self.way](self.folder)


def _raise(folder: Path) -> None:
    raise RuntimeError("a rogue's own words")


def _sys_exit(folder: Path) -> None:
    sys.exit(7)


def _os_exit(folder: Path) -> None:
    os._exit(7)


def _segfault(folder: Path) -> None:
    ctypes.string_at(0)


def _kill(folder: Path) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _stop(folder: Path) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _hang_with_gil(folder: Path) -> None:
    mutex = ctypes.create_string_buffer(64)
    library = ctypes.PyDLL(None)  # calls keep the interpreter's lock
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)


def _hang_without_gil(folder: Path) -> None:
    time.sleep(LONG_S)


def _eat_memory(folder: Path) -> None:
    hoard = []
    for _ in range(4000):  # its group may use much less
        hoard.append(b"x" * (1 << 20))


def _fork_grandchild(folder: Path) -> None:
    pid = os.fork()
    if pid == 0:
        time.sleep(LONG_S)  # and holds all that it inherited
        os._exit(0)
    (folder / "grandchild").write_text(str(pid))


WAYS: dict[str, Callable[[Path], None]] = {
    "raise": _raise,
    "sys.exit": _sys_exit,
    "os._exit": _os_exit,
    "SIGSEGV": _segfault,
    "SIGKILL": _kill,
    "SIGSTOP": _stop,
    "hang with the GIL": _hang_with_gil,
    "hang without it": _hang_without_gil,
    "eat memory": _eat_memory,
    "fork a grandchild": _fork_grandchild,
}


class Healthy:
    """Samples that draw, so that a batch which is loaded again must be seeded again."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        return torch.rand(FLOATS) + index


class AtSample(Healthy):
    def __init__(self, deed: Deed) -> None:
        self.deed = deed

    def __getitem__(self, index: int) -> Any:
        if index == AT:
            self.deed()
        return super().__getitem__(index)


class AtUnpickling(Healthy):
    def __init__(self, deed: Deed) -> None:
        self.deed = deed

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.deed()


class AtPacking:
    """Goes with a batch, and acts when it is pickled."""

    def __init__(self, deed: Deed) -> None:
        self.deed = deed

    def __reduce__(self) -> Any:
        self.deed()
        return int, (AT,)

    def __int__(self) -> int:
        return AT  # where nothing is packed


class CollateAt:
    """Acts while the batch of the one sample is collated, or packed."""

    def __init__(self, deed: Deed, *, packing: bool = False) -> None:
        self.deed, self.packing = deed, packing

    def __call__(self, samples: list[Any]) -> Any:
        from torch.utils.data import default_collate

        its = any(int(sample[0]) == AT for sample in samples)
        if self.packing:
            return default_collate(samples), AtPacking(self.deed) if its else 0
        if its:
            self.deed()
        return default_collate(samples)


class AtSeal:
    """A worker_init_fn that acts when the slab is sealed and half of its parcel is sent."""

    def __init__(self, deed: Deed) -> None:
        self.deed = deed

    def __call__(self, worker: int) -> None:
        from antifreeze._worker.channel import Channel

        whole, deed = Channel._send_with, self.deed

        def half(self: Channel, descriptor: int, piece: memoryview) -> int:
            sent = whole(self, descriptor, piece[: len(piece) // 2])
            deed()
            return sent

        Channel._send_with = half


class AtExit:
    """A worker_init_fn that acts when the worker leaves."""

    def __init__(self, deed: Deed) -> None:
        self.deed = deed

    def __call__(self, worker: int) -> None:
        Finalize(None, self.deed, exitpriority=0)  # (3.11 runs no atexit in what it forks)


class AtInit:
    def __init__(self, deed: Deed) -> None:
        self.deed = deed

    def __call__(self, worker: int) -> None:
        self.deed()


LIBRARY_CODE = """
from tests.rogues import misdeeds

class Data(misdeeds.Healthy):
    pass

if (deed := misdeeds.library_deed()) is not None:
    deed()
"""


def library_deed() -> Deed | None:
    """Give what the library's module is to do, by the environment, in the process that imports."""
    told = os.environ.get("ROGUE_LIBRARY")
    if told is None:
        return None
    way, folder, once, main_pid = told.split("|")
    deed = Deed(way, Path(folder), once=bool(int(once)))
    deed.main_pid = int(main_pid)
    return deed


def of_library(deed: Deed, place: Path) -> Any:
    """Write the library and give a dataset of it: whoever unpickles that imports the module."""
    program = deed.folder.parent.name
    name = f"rogue_library_{program}_{deed.folder.name}"  # no other cell has it
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{name}.py").write_text(LIBRARY_CODE)
    sys.path.append(str(place))
    told = deed.way, str(deed.folder), str(int(deed.once)), str(deed.main_pid)
    os.environ["ROGUE_LIBRARY"] = "|".join(told)
    return __import__(name).Data()


def prepared(phase: str, deed: Deed) -> dict[str, Any]:
    """Give the arguments of a loader that meets this deed in this phase."""
    import site

    match phase:
        case "import":
            data = of_library(deed, Path(site.getusersitepackages()))
            return {"dataset": data, "multiprocessing_context": "spawn"}
        case "unpickle":
            return {"dataset": AtUnpickling(deed), "multiprocessing_context": "spawn"}
        case "init_fn":
            return {"dataset": Healthy(), "worker_init_fn": AtInit(deed)}
        case "getitem":
            return {"dataset": AtSample(deed)}
        case "collate":
            return {"dataset": Healthy(), "collate_fn": CollateAt(deed)}
        case "pack":
            return {"dataset": Healthy(), "collate_fn": CollateAt(deed, packing=True)}
        case "seal":
            return {"dataset": Healthy(), "worker_init_fn": AtSeal(deed)}
        case "exit":
            return {"dataset": Healthy(), "worker_init_fn": AtExit(deed)}
    raise ValueError(phase)


PHASES = ("import", "unpickle", "init_fn", "getitem", "collate", "pack", "seal", "exit")
