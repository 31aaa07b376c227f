"""What an error looks like to who reads it, and what it says to try."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import IterableDataset

from antifreeze import DataLoader
from antifreeze._core.faults import Ending, Fault, FaultKind
from antifreeze._core.health.worker_phases import SAMPLE
from antifreeze._core.tickets import Ticket
from antifreeze._linux.available_memory import Available
from antifreeze._loading.error_advice import Phase, next_step
from antifreeze._loading.job import Job
from antifreeze.errors import TransportFailed, error_for
from antifreeze.policies import raising, skipping

from ..forked_programs import run_script
from .observe import error_of, notes


def _job(**other: Any) -> Job:
    values: dict[str, Any] = {
        "dataset": None,
        "streams": False,
        "auto_collation": True,
        "collate_fn": len,
        "drop_last": False,
        "num_workers": 2,
        "base_seed": 0,
        "init_fn": None,
    }
    return Job(**{**values, **other})


SKIP = 'on_error="skip"'
DEBUG = "num_workers=0"


@pytest.mark.parametrize(
    ("error", "proven", "words"),
    [
        (ValueError("bad header"), False, SKIP),
        (FileNotFoundError(2, "no such file", "x"), False, "`antifreeze scan`"),
        (RuntimeError("jpeg"), False, SKIP),
        (AttributeError("'NoneType' object has no attribute 'shape'"), True, SKIP),
        (AttributeError("'Photos' object has no attribute 'lenght'"), False, DEBUG),
        (TypeError("takes 2 arguments"), False, DEBUG),
        (KeyError("label"), True, SKIP),
        (NameError("cv3"), True, DEBUG),
        (ModuleNotFoundError("cv2"), True, DEBUG),
        (ConnectionResetError(104, "reset"), True, "antifreeze.policies.raising(retries=3)"),
        (TimeoutError("timed out"), True, "antifreeze.policies.raising(retries=3)"),
        (MemoryError(), True, "fewer workers, a smaller batch_size"),
        (OSError(24, "Too many open files"), True, ""),
        (OSError(28, "No space left on device"), True, ""),
        (RuntimeError("Cannot re-initialize CUDA in forked subprocess"), False, ""),
        (KeyboardInterrupt(), True, ""),
    ],
)
def test_the_next_step_fits_the_error(error: BaseException, proven: bool, words: str) -> None:
    step = next_step(error, _job(), Phase.SAMPLE, proven=proven, none=False)
    assert words in step and "\n" not in step
    assert bool(step) == bool(words)


def test_the_next_step_fits_the_loader() -> None:
    bad = ValueError("bad header")

    def step(job: Job, phase: Phase = Phase.SAMPLE, *, none: bool = False) -> str:
        return next_step(bad, job, phase, proven=True, none=none)

    assert step(_job(policy=skipping())) == ""  # it has one, which does not take this error
    assert SKIP in step(_job(policy=raising(retries=1)))
    assert "on_error" not in step(_job(auto_collation=False))  # refused there
    assert step(_job(), Phase.COLLATE) == ""
    assert SKIP in step(_job(), Phase.COLLATE, none=True)
    assert step(_job(), Phase.OTHER) == ""
    assert "replace" not in step(_job(streams=True), Phase.STREAM)
    assert "inside the generator" in step(_job(streams=True), Phase.GENERATOR)
    reset = ConnectionResetError(104, "reset")
    retried = _job(policy=raising(retries=1))
    assert SKIP in next_step(reset, retried, Phase.SAMPLE, proven=True, none=False)
    typo = NameError("cv3")
    assert next_step(typo, _job(num_workers=0), Phase.SAMPLE, proven=True, none=False) == ""


class Rows:
    """Numbers; one of them is bad in some way."""

    def __init__(self, way: str) -> None:
        self.way = way

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        if index == 5 and self.way == "none":
            return None
        if index == 5:
            raise TypeError("not a row")
        return index


class Counting(IterableDataset[int]):
    """A stream that is no generator."""

    def __iter__(self) -> Iterator[int]:
        return iter(map(self.number, range(8)))

    def number(self, index: int) -> int:
        if index == 5:
            raise ValueError("not a row")
        return index


def refuse(samples: Any) -> Any:
    raise ValueError("cannot collate")


@pytest.mark.parametrize("workers", [0, 1])
def test_errors_of_real_loaders_say_what_to_try(workers: int) -> None:
    def told(dataset: Any, **other: Any) -> str:
        return notes(error_of(DataLoader(dataset, 4, num_workers=workers, **other)))

    assert 'to continue without such samples: on_error="skip" or "replace"' in told(Rows("raise"))
    assert "samples that are None: on_error" in told(Rows("none"))
    assert "on_error" not in told(Rows("well"), collate_fn=refuse)
    assert 'to continue without such samples: on_error="skip"' in told(Counting())


PROGRAM = """
    import sys
    from antifreeze import DataLoader

    class Photos:
        def __len__(self):
            return 40
        def __getitem__(self, index):
            if index == 13:
                if sys.argv[1] == "exit":
                    sys.exit(3)  # line 11
                raise ValueError("broken data stream")
            return index

    for batch in DataLoader(Photos(), batch_size=4, num_workers=int(sys.argv[2])):
        pass
"""


def _printed(tmp_path: Path, *arguments: str) -> str:
    program = tmp_path / "train.py"
    program.write_text(textwrap.dedent(PROGRAM))
    return run_script(program, *arguments).stderr


@pytest.mark.parametrize("workers", ["0", "2"])
def test_what_is_printed_has_one_line_of_ours_and_all_of_the_users(
    workers: str, tmp_path: Path
) -> None:
    printed = _printed(tmp_path, "raise", workers)
    files = [line.split('"')[1] for line in printed.splitlines() if line.startswith("  File")]
    assert sum("antifreeze" in file.split("/") for file in files) == 1, printed
    assert printed.count('train.py", line 12, in __getitem__') == 1
    assert printed.count("ValueError: broken data stream") == 1


def test_an_exit_in_a_sample_names_its_line(tmp_path: Path) -> None:
    printed = _printed(tmp_path, "exit", "2")
    assert "exited unexpectedly with exit code 3." in printed
    assert "likely cause  sys.exit() was called at train.py:11, in __getitem__" in printed
    assert "num_workers=0" not in printed  # there it would end the program without a word


def _crashed(**how: Any) -> str:
    ending = Ending(step=SAMPLE + 1, **how)
    ticket = Ticket(1, 0, 0, [4, 5])
    return str(error_for(Fault(FaultKind.CRASH, 0, 1, ticket, ending), "pid 7"))


def test_a_crash_says_what_to_try_by_its_cause() -> None:
    segfault = _crashed(signal=11)
    assert 'on_error="skip" or "replace"' in segfault and "num_workers=0" in segfault
    for killed in (_crashed(signal=9), _crashed(signal=9, words="out", out_of_memory=True)):
        assert "fewer workers (at least 1)" in killed and "num_workers=0" not in killed
    assert "num_workers=0" in _crashed(exit_code=3)


@pytest.mark.parametrize("kind", [FaultKind.REFUSED, FaultKind.NEVER_STARTED])
def test_no_workers_are_no_remedy_for_memory(kind: FaultKind) -> None:
    def told(ending: Ending) -> str:
        return str(error_for(Fault(kind, 0, 1, ending=ending), "pid 7"))

    short = "[Errno 12] Cannot allocate memory"
    for ending in (
        Ending(words=short, refused=True),
        *(
            [Ending(signal=9), Ending(signal=9, out_of_memory=True)]
            if "never" in kind.value
            else []
        ),
    ):
        assert "fewer workers (at least 1)" in told(ending)
        assert "num_workers=0" not in told(ending)
    others = told(Ending(words="[Errno 11] Resource temporarily unavailable", refused=True))
    assert "with num_workers=0 none are needed" in others


def test_no_memory_to_begin_with_is_no_reason_for_no_workers() -> None:
    told = str(TransportFailed.no_memory_to_begin(4096, Available(1024, "available here")))
    assert "fewer workers (at least 1)" in told and "num_workers=0" not in told
