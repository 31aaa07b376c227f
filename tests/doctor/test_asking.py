"""What our own loader answers is a part of the diagnosis, and never in its way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from antifreeze.doctor.attach.diagnose import diagnose
from antifreeze.doctor.attach.gather.collect import Manner, look_at

from ..rogues.programs import line, program
from .patient_programs import blindness
from .test_endings import _case


@pytest.mark.parametrize(
    "said", [{"loaders": ["x"]}, {"loaders": 3}, {"loaders": [{"workers": 1}]}]
)
def test_an_answer_that_is_rubbish_does_not_cost_the_diagnosis(said: object) -> None:
    case = _case("sample_in_our_worker")
    answer = diagnose(replace(case, told={str(case.asked): said}))[0]
    assert answer.findings and answer.told[-1:] == ("its loader's answer is not as it should be",)


OURS = """
    if {clean}:
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    iterator = iter(DataLoader(Numbers(1000), num_workers=2))
    next(iterator)
    say(iterator._workers[0].pid)
    time.sleep(60)
"""


@pytest.mark.parametrize("clean", [False, True])
def test_a_worker_of_ours_stands_for_its_program(clean: bool, tmp_path: Path) -> None:
    """One that was forked, and one that comes from a clean process."""
    if reason := blindness():
        pytest.skip(f"stacks cannot be taken here: {reason}")
    with program(tmp_path, OURS.format(clean=clean), anew=True) as process:
        case = look_at(int(line(process)), Manner(between_s=0.1, patience_s=0.0))
    assert process.pid in {each.pid for each in case.looks[-1].processes}
    assert [each.pid for each in diagnose(case)] == [process.pid]
