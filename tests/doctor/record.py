"""Write down what is seen of a patient, for the tests that need no processes.

python -m tests.doctor.record [NAME ...]    (all of them, without names)
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import pytest

from antifreeze.doctor.attach.gather.collect import Manner

from .patient_programs import (
    PAUSE_S,
    TRIES,
    Patient,
    admitted,
    examine,
    named,
    patients,
    said_of_what_is_well,
)

CASES = Path(__file__).parent / "cases"


def main() -> int:
    wanted = sys.argv[1:]
    CASES.mkdir(exist_ok=True)
    for patient in patients():
        if not wanted or patient.name in wanted:
            try:
                print(patient.name, record(patient), flush=True)
            except pytest.skip.Exception as why:
                print(patient.name, "NOT written: it cannot run here:", why, flush=True)
    return 0


def record(patient: Patient) -> str:
    """Admit a patient and write its case, if what is named is right."""
    with tempfile.TemporaryDirectory() as folder, admitted(patient, Path(folder)) as pid:
        for _ in range(TRIES):
            case, answer = examine(pid, None if patient.expects else Manner())
            said = said_of_what_is_well(answer)
            if named(answer) == {*patient.expects} and said == {*patient.says}:
                text = _without_places(case.to_json(), folder)
                (CASES / f"{patient.name}.json").write_text(text + "\n")
                return "written"
            time.sleep(PAUSE_S)
    found, wanted = named(answer) | said, {*patient.expects, *patient.says}
    return f"NOT written: {sorted(found)} instead of {sorted(wanted)}"


def _without_places(text: str, folder: str) -> str:
    """Take out where things lie on this machine."""
    project = Path(__file__).parent.parent.parent
    places = {
        folder: "/folder",
        str(Path(__file__).parent): "/home/jo",
        str(project): "/home/jo/antifreeze",
        sys.prefix: "/home/jo/venv",
        sys.base_prefix: "/usr",
        os.getcwd(): "/home/jo",
        str(Path.home()): "/home/jo",
    }
    for place in sorted(places, key=len, reverse=True):
        text = text.replace(place, places[place])
    return text


if __name__ == "__main__":
    raise SystemExit(main())
