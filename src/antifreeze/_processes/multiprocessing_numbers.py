"""The numbers that multiprocessing gives to the children of a process, in the order of their birth.

Programs seed by them (`multiprocessing.current_process()._identity`). So workers have the numbers
that torch's would have, also those that a zygote forks, and a zygote has none.
"""

from __future__ import annotations

import itertools
import multiprocessing.process
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import Any

_home: Any = multiprocessing.process
_COUNTER = "_process_counter"  # private to Python, from 3.3 to 3.14 at least


def take() -> int | None:
    """Return the number of the next child of this process; None if this Python does not count."""
    counter = getattr(_home, _COUNTER, None)
    return None if counter is None else next(counter)


def without_number(make: Callable[[], BaseProcess]) -> BaseProcess:
    """Make a process that takes no number from those to come."""
    counter = getattr(_home, _COUNTER, None)
    if counter is None:
        return make()
    setattr(_home, _COUNTER, itertools.count())
    try:
        return make()
    finally:
        setattr(_home, _COUNTER, counter)


def give(process: BaseProcess, number: int | None) -> None:
    """Have a process that is about to start bear this number."""
    if number is not None:
        process._identity = (number,)
