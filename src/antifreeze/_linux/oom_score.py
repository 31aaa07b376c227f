"""Whom the kernel ends first when memory runs out."""

from __future__ import annotations

import contextlib
import os


def raise_oom_score(least: int) -> None:
    """Have this process, and those it starts, taken before others with a lower score; -1,000 to
    1,000. A score that is higher already stays. Never raises."""
    with contextlib.suppress(OSError, ValueError):
        # Not as a Python file: 30 us instead of 250.
        file = os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
        try:
            if int(os.read(file, 16)) < least:
                os.pwrite(file, b"%d" % least, 0)
        finally:
            os.close(file)
