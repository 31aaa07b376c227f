"""What a worker is said to be busy with."""

from __future__ import annotations

from typing import Any

import pytest

from antifreeze._core.health.stall_detection import Activity, Pulse, Stall
from antifreeze._core.health.worker_phases import COLLATE, HAND_OVER, PACK, SAMPLE, WHOLE
from antifreeze._core.limits import Limits
from antifreeze._core.tickets import Ticket
from antifreeze._reporting.fault_log import LoaderFaults
from antifreeze._reporting.stall_messages import doing, tell
from antifreeze.policies import raising


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


def test_a_report_says_which_sample_of_the_dataset_under_a_subset_it_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    book = LoaderFaults(raising(), underlying=lambda index: str(20 + index))
    ticket = Ticket(7, 0, 1, [1, 2])
    stall = Stall(0, 1, 7, SAMPLE + 1, 5.0, 5.0, Pulse.STUCK, Activity())
    tell(stall, ticket, "pid 5", Limits(), book.behind(stall.step, ticket))
    (line,) = [record.getMessage() for record in caplog.records]
    assert "sample 2 (batch 1) is stuck" in line
    assert line.endswith(". Sample 2 is 22 in the dataset of the Subset.")
    assert book.behind(COLLATE, ticket) == ""  # of no one sample
    assert book.behind(WHOLE, ticket) == ""
    assert book.behind(SAMPLE, None) == ""


def said(step: int, indices: Any) -> str:
    stall = Stall(0, 1, 7, step, 5.0, 5.0, Pulse.STUCK, Activity())
    return doing(stall, Ticket(7, 0, 1, indices))
