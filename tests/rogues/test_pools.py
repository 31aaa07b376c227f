"""Asking which libraries a process has, while other threads do the same."""

from __future__ import annotations

import subprocess
import sys

from ..patience import PATIENCE_S

ASKS = """
import sys, threading, time, torch
from antifreeze._linux.memory_maps import own_libraries
from antifreeze._processes.fork_safety import native_thread_pools as pools

sys.setswitchinterval(1e-5)  # threads take turns all the time
end = time.monotonic() + 3

def ask():
    while time.monotonic() < end:
        pools.lay_down()

threads = [threading.Thread(target=ask) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert any("libtorch" in path for path in own_libraries())
"""


def test_threads_that_begin_loops_at_the_same_time_do_not_lock_each_other_out() -> None:
    subprocess.run([sys.executable, "-c", ASKS], check=True, timeout=PATIENCE_S)
