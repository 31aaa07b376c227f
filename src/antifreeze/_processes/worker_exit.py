"""How a worker that was told to stop leaves, so that the loop need not wait for the kernel.

To take down the memory of a process takes the kernel some 4 ms, in which nothing can happen any
more. So a worker does all else first, as multiprocessing would: it runs exit handlers, waits for
threads and flushes its output. Then it closes its files, which gives back their locks, ports and
devices, says that it has left, and ends.

It does so only if it has no thread but ours: a thread of the user's, or of a native library, might
use one of the files in its last moment.
"""

from __future__ import annotations

import contextlib
import os
import threading
from multiprocessing import util
from typing import NoReturn

from .._linux.live_processes import own_threads
from .._linux.open_descriptors import own_descriptors
from .._transport.framing import Kind, prefix

OURS = "antifreeze-"  # all our threads begin so
_STANDARD = 3  # descriptors: input, output, errors


def leave(channel: int) -> None:
    """End this process, or return if it is better ended by multiprocessing, in the usual way.
    `channel`: the descriptor of its channel."""
    util._exit_function()  # type: ignore[attr-defined]
    with contextlib.suppress(Exception):  # it joins threads of the program, which are not here
        threading._shutdown()  # type: ignore[attr-defined]
    util._flush_std_streams()  # type: ignore[attr-defined]
    if _is_alone():
        _leave_at_once(channel)


def _is_alone() -> bool:
    """Whether no thread runs in this process but this one and ours."""
    threads = threading.enumerate()
    here = threading.current_thread()
    if any(each is not here and not each.name.startswith(OURS) for each in threads):
        return False
    with contextlib.suppress(OSError):
        return len(own_threads()) <= len(threads)
    return False


def _leave_at_once(channel: int) -> NoReturn:
    try:
        for number in own_descriptors():
            if number >= _STANDARD and number != channel:
                with contextlib.suppress(OSError):  # the one that was listed with
                    os.close(number)
        os.write(channel, prefix(Kind.LEFT, 0))
    finally:
        os._exit(0)
