"""Workers that come from a clean process: made so by a thread that runs beside, and asked there."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import psutil

from antifreeze import DataLoader

from ..conftest import clean_process_pid


class Asked:
    """Holds one thing; tells what a worker makes of it."""

    def __init__(self, thing: Any, question: Any) -> None:
        self.thing, self.question = thing, question

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        return self.question(self.thing)


@contextlib.contextmanager
def another_thread() -> Iterator[None]:
    """Run a thread that holds a lock: a fork beside it is not safe."""
    done, lock = threading.Event(), threading.Lock()

    def hold() -> None:
        with lock:
            done.wait()

    thread = threading.Thread(target=hold, name="somebody else")
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def ask(thing: Any, question: Any, **arguments: Any) -> Any:
    """Have a question about a thing answered by a worker, which must come from a clean process."""
    with another_thread():
        loader: DataLoader[Any] = DataLoader(
            Asked(thing, question),
            None,
            num_workers=1,
            collate_fn=lambda row: row,
            **arguments,
        )
        iterator = iter(loader)
        answers = [next(iterator)]
        assert is_clean(iterator), "it was forked"
        answers += iterator
    return answers[0]


def is_clean(iterator: Any) -> bool:
    """Say whether the workers descend from the clean process."""
    assert iterator._driver.backend._source._present is not None
    zygote = iterator._driver.backend._source._present.pid
    return psutil.Process(zygote).ppid() == clean_process_pid()
