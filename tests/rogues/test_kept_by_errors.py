"""Iterators that the traceback of an error keeps alive, as notebooks do: what becomes of their
workers."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from antifreeze import DataLoader

from ..other_limits import other_limits
from ..patience import PATIENCE_S


class Numbers:
    def __init__(self, bad: int | None = None) -> None:
        self.bad = bad

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> int:
        if index == self.bad:
            raise ValueError("bad")
        return index


def _plainly(loader: Any) -> None:
    for _ in loader:
        pass


def _counting(loader: Any) -> None:
    for _ in enumerate(loader):
        pass


def _in_the_body(loader: Any) -> None:
    for _ in loader:
        raise ValueError


def _by_name(loader: Any) -> None:
    kept = iter(loader)
    for _ in kept:
        raise ValueError


def _counting_by_name(loader: Any) -> None:
    kept = enumerate(loader)
    for _ in kept:
        raise ValueError


def _in_a_generator(loader: Any) -> None:
    sum(int(batch.sum()) for batch in loader)


def _workers() -> int:
    family = psutil.Process().children(recursive=True)
    return sum(each.name().startswith("af_worker") for each in family if each.is_running())


def _comes_to(count: int, seconds: float = PATIENCE_S) -> bool:
    end = time.monotonic() + seconds
    while _workers() != count:
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


def _fail(
    loop: Callable[[Any], None], loader_class: type[DataLoader[Any]] = DataLoader
) -> list[Exception]:
    """Fail three times, as a cell that is run again; keep the errors."""
    kept: list[Exception] = []
    for _ in range(3):
        try:
            loop(loader_class(Numbers(bad=9), 2, num_workers=2))
        except ValueError as error:
            kept.append(error)
    assert len(kept) == 3
    return kept


@pytest.mark.parametrize("loop", [_plainly, _counting, _in_the_body])
def test_a_loop_that_failed_has_let_its_iterator_go(loop: Callable[[Any], None]) -> None:
    gc.disable()
    try:
        kept = _fail(loop)
        assert _comes_to(0)
        assert kept
    finally:
        gc.enable()


class SoonLoader(DataLoader[Any]):
    """Whoever has left it is taken to have gone after half a second."""

    _limits = other_limits(away={"abandoned_s": 0.5})


@pytest.mark.parametrize("loop", [_by_name, _counting_by_name, _in_a_generator])
def test_workers_of_an_iterator_that_a_traceback_keeps_leave(loop: Callable[[Any], None]) -> None:
    kept = _fail(loop, SoonLoader)
    assert _comes_to(0)
    assert kept


def test_they_come_back_with_whoever_asks_and_nothing_is_missing() -> None:
    iterator = iter(SoonLoader(Numbers(bad=9), 2, num_workers=2))
    seen = []
    for _ in range(30):
        try:
            seen.append(next(iterator).tolist())
        except ValueError:
            assert _comes_to(0)
        except StopIteration:
            break
    assert seen == [[n, n + 1] for n in range(0, 40, 2) if n != 8]


def test_workers_of_a_loop_that_is_only_slow_stay() -> None:
    iterator = iter(SoonLoader(Numbers(), 2, num_workers=2))
    next(iterator)
    assert not _comes_to(0, 3.0)
    assert len(list(iterator)) == 19
