"""Whether a thread computes or waits: on a busy machine one look is not enough to tell."""

from __future__ import annotations

import pytest

from antifreeze._linux import live_processes
from antifreeze._processes import process_activity


@pytest.mark.parametrize(
    ("states", "runs"), [("S", False), ("RSSSSS", False), ("RRRSSS", False), ("RRRRRR", True)]
)
def test_a_thread_that_is_about_to_wake_does_not_run(
    states: str, runs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = iter(states)
    monkeypatch.setattr(live_processes, "state", lambda _: next(seen))
    monkeypatch.setattr(process_activity, "pause", lambda _: None)
    assert process_activity.thread_runs(1) is runs
    assert not list(seen)
