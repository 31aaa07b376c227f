"""DistributedDataParallel: how many ranks to run, and what their reports show together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from .outcomes import Outcome, failed, ok

SAMPLES = 96  # divisible by the ranks and the batch size: no rank gets a sample twice
MOST_RANKS = 2  # that gradients agree is seen with two as with eight
BACKENDS = {"cuda": "nccl", "xpu": "xccl"}  # CUDA is also what torch calls ROCm


def ranks_for(device_type: str, devices: int) -> int:
    """Return how many ranks to run: one for each device, on a CPU as many as are wanted."""
    return MOST_RANKS if device_type not in BACKENDS else max(1, min(MOST_RANKS, devices))


def judge(reports: Sequence[Mapping[str, Any]]) -> Outcome:
    """Return what the reports of all ranks show together."""
    counts = Counter(index for report in reports for index in report["seen"])
    if counts != Counter(range(SAMPLES)):
        missing = SAMPLES - len(counts.keys() & set(range(SAMPLES)))
        repeated = sum(count > 1 for count in counts.values())
        return failed("wrong", f"{missing} of {SAMPLES} samples missing, {repeated} more than once")
    first = reports[0]["gradients"]
    if any(report["gradients"] != first for report in reports):
        return failed("wrong gradients", "the ranks do not agree on the gradients")
    count = len(reports)
    ranks = "1 rank" if count == 1 else f"{count} ranks"
    return ok(f"ok ({reports[0]['backend']}, {ranks})", f"{len(first)} steps")
