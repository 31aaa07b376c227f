"""The worker's own witness, without its thread."""

from __future__ import annotations

from array import array

from antifreeze._core.health.worker_phases import SAMPLE
from antifreeze._transport.status_board import StatusLine
from antifreeze._worker.stack_sampler import StackSampler


def test_a_witness_says_what_it_looks_at() -> None:
    witness = StackSampler.__new__(StackSampler)  # a real one watches its thread to the end
    witness._status = StatusLine(memoryview(array("q", [0, 0, 5, SAMPLE])), 2)
    witness._look_s = 2.0
    assert repr(witness) == "<Witness every 2 s, ticket 5, step 16>"
