"""What a worker is said to be busy with."""

from __future__ import annotations

from typing import Any

import pytest

from antifreeze._core.stalls import Activity, Pulse, Stall
from antifreeze._core.steps import COLLATE, HAND_OVER, PACK, WHOLE
from antifreeze._core.tickets import Ticket
from antifreeze._stalls_told import doing


@pytest.mark.parametrize(
    ("step", "verb"), [(COLLATE, "collating"), (PACK, "packing"), (HAND_OVER, "handing over")]
)
@pytest.mark.parametrize(
    ("indices", "what"),
    [
        ([3, 4], "samples [3, 4] (batch 1)"),
        (12, "sample 12 (batch 1)"),
        ([None, None], "batch 1 of its stream"),
        (None, "batch 1 of its stream"),
    ],
)
def test_work_on_a_whole_batch_names_its_samples(
    step: int, verb: str, indices: Any, what: str
) -> None:
    assert said(step, indices) == f"{verb} {what}"


def test_a_call_for_all_of_a_batch_names_its_samples() -> None:
    assert said(WHOLE, [3, 4]) == "loading samples [3, 4] (batch 1)"
    assert said(WHOLE, "key") == "loading sample 'key' (batch 1)"


def said(step: int, indices: Any) -> str:
    stall = Stall(0, 1, 7, step, 5.0, 5.0, Pulse.STUCK, Activity())
    return doing(stall, Ticket(7, 0, 1, indices))
