"""Waiting until a thread waits: the machine may be busy with others."""

from __future__ import annotations

import sys
import threading
import time

from antifreeze._processes.fork_safety.parked_threads import running

from ..patience import PATIENCE_S


def wait_until_at_rest(thread: threading.Thread, seconds: float) -> None:
    """Wait until a thread has been parked at one and the same place for so long."""
    since, place = 0.0, None
    give_up = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up:
        frame = sys._current_frames().get(thread.ident or 0)
        now = None if frame is None or running(frame) else (frame, frame.f_lasti)
        if now is None or now != place:
            since, place = time.monotonic(), now
        elif time.monotonic() - since >= seconds:
            return
        time.sleep(0.002)
    raise AssertionError(f"{thread} does not come to rest")


def wait_until_parked(thread: threading.Thread) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up:
        frame = sys._current_frames().get(thread.ident or 0)
        if frame is not None and not running(frame):
            return
        time.sleep(0.002)
    raise AssertionError(f"{thread} does not come to rest")
