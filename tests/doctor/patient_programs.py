"""Patients: tiny programs, each of which hangs in one known way, in processes of their own.

A patient is a script in `patients/`. Its docstring's first line says what is wrong with it; a line
`expects: NAME` (or `expects: nothing`) which cause is to be named; several may be. What is said of
a program that is well follows on that line: `expects: nothing; says: slow-samples`. It prints
`begins` when what is wrong is about to happen, and before it `ask: PID` where another process than
its own is to be asked about. What needs a folder gets one as its argument. One that cannot hang on
this machine prints `cannot: WHY`, and its test is skipped.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import antifreeze
from antifreeze.doctor.attach.diagnose import Answer, diagnose
from antifreeze.doctor.attach.facts import Case
from antifreeze.doctor.attach.gather.collect import Manner, look_at
from antifreeze.doctor.attach.gather.py_spy import PySpy
from antifreeze.doctor.findings import Confidence

from ..members import end, new_mark

PATIENTS = Path(__file__).parent / "patients"
BEGIN_S = 120.0  # to import torch on a busy machine
SETTLE_S = 2.5  # from `begins` to the hang
TRIES = 4  # of looking at it, where the machine was so busy that it had not come to the point
PAUSE_S = 4.0
LOOKS = 3  # at one who is well
HURRY_S = 3.0  # that one is watched who is sick: it does not move, however long it is watched
# What people meet most, one or two a kind; what was seen of all of them is looked at in any case.
SEEN_ALWAYS = (
    "batch_lost",
    "endless_sample",
    "exit_joins_full_pipe",
    "file_lock",
    "network_read",
    "openmp_after_fork",
    "orphaned_workers",
    "sample_in_our_worker",
    "two_causes",
    "well_and_between_epochs",
    "worker_gone",
)


thorough = pytest.mark.thorough  # of a file: what `make test-all` runs, and `make test` does not


@dataclass(frozen=True, slots=True)
class Patient:
    path: Path
    expects: tuple[str, ...]
    says: tuple[str, ...] = ()  # causes that say that all is well

    @property
    def name(self) -> str:
        return self.path.stem


def patients() -> list[Patient]:
    return [_read(path) for path in sorted(PATIENTS.glob("[a-z]*.py"))]


def shares() -> tuple[list[Patient], list[Patient]]:
    """Return those that `make test` looks at, and the others: each takes ten seconds."""
    everybody = patients()
    assert {*SEEN_ALWAYS} <= {each.name for each in everybody}
    some = [each for each in everybody if each.name in SEEN_ALWAYS]
    return some, [each for each in everybody if each not in some]


@functools.cache
def blindness() -> str:
    """Return why no stacks can be taken on this machine; nothing if they can."""
    code = "import time; print('there', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
        try:
            return PySpy().take([process.pid])[process.pid].error
        finally:
            process.kill()


def _read(path: Path) -> Patient:
    found = re.search(r"^expects: (.+?)(?:; says: (.+))?$", path.read_text(), re.MULTILINE)
    assert found is not None, f"{path.name} does not say what it expects"
    names, says = (found[at].replace(",", " ").split() if found[at] else [] for at in (1, 2))
    return Patient(path, () if names == ["nothing"] else tuple(names), tuple(says))


@contextmanager
def admitted(patient: Patient, folder: Path) -> Iterator[int]:
    """Run a patient; yield its main process."""
    if reason := blindness():
        pytest.skip(f"stacks cannot be taken here: {reason}")
    mark = new_mark()
    source = str(Path(antifreeze.__file__).parent.parent)
    paths = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
    settings = os.environ | mark | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "2"}
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, str(patient.path), str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=settings,
            start_new_session=True,
        )
        try:
            _await_begin(process, folder)
            time.sleep(SETTLE_S)
            yield _asked(folder) or process.pid
        finally:
            end(process, mark)


def _await_begin(process: subprocess.Popen[bytes], folder: Path) -> None:
    give_up = time.monotonic() + BEGIN_S
    while "begins" not in (out := (folder / "out").read_text(errors="replace")):
        if found := re.search(r"^cannot: (.*)$", out, re.MULTILINE):
            pytest.skip(found[1])
        said = (folder / "err").read_text(errors="replace")
        assert process.poll() is None, f"it ended: {said[-2000:]}"
        assert time.monotonic() < give_up, f"it has not begun: {said[-2000:]}"
        time.sleep(0.05)


def _asked(folder: Path) -> int:
    """Return the process that is to be asked about, if a patient says that it is not its own."""
    found = re.search(r"^ask: (\d+)$", (folder / "out").read_text(), re.MULTILINE)
    return int(found[1]) if found else 0


def examine(pid: int, manner: Manner | None = None) -> tuple[Case, Answer]:
    """Look at a program; return what was seen, and the answer."""
    case = look_at(pid, manner or Manner(patience_s=HURRY_S))
    return case, answer_to(case)


def answer_to(case: Case) -> Answer:
    """Return the answer for a program, all its ranks together."""
    answers = diagnose(case)
    assert answers, case.looks[-1]
    assert not any(each.broken for each in answers), answers
    found = tuple(each for answer in answers for each in answer.findings)
    return replace(answers[0], findings=found)


def named(answer: Answer) -> set[str]:
    """Return the causes that an answer names, but those that say that all is well."""
    return {each.rule for each in answer.findings if not each.harmless}


def said_of_what_is_well(answer: Answer) -> set[str]:
    """Return the causes that an answer names to say that all is well."""
    return {each.rule for each in answer.findings if each.harmless}


def wrongly_certain(answer: Answer, expects: tuple[str, ...]) -> set[str]:
    """Return the causes that an answer is certain of, and should not be."""
    sure = {each.rule for each in answer.findings if each.confidence is Confidence.CERTAIN}
    return sure - {*expects} - said_of_what_is_well(answer)


def check_cause_is_named(patient: Patient, folder: Path) -> None:
    """Check that the cause is named, and nothing wrong is called certain."""
    with admitted(patient, folder) as pid:
        for _ in range(TRIES):
            _, answer = examine(pid)
            assert not wrongly_certain(answer, patient.expects), text_of(answer)
            if {*patient.expects} <= named(answer):
                break
            time.sleep(PAUSE_S)
    assert {*patient.expects} <= named(answer), text_of(answer)
    assert answer.findings[0].rule in patient.expects, text_of(answer)
    assert answer.findings[0].evidence and answer.findings[0].get_out, text_of(answer)


def check_nothing_is_named(patient: Patient, folder: Path, looks: int = LOOKS) -> None:
    """Check that no cause is named for a program that is well."""
    manner = Manner()
    with admitted(patient, folder) as pid:
        for _ in range(looks):
            _, answer = examine(pid, manner)
            assert not named(answer), text_of(answer)


def text_of(answer: Answer) -> str:
    return "\n".join([answer.sentence, *map(str, answer.findings), *answer.facts])
