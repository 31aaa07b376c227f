"""A batch that cannot be sent is an error, never a hang (ours only: torch waits for ever)."""

import re
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from .batch_kinds import Plain, Record
from .observe import LoaderClass, whole_text
from .programs import MapRows


def _generator(_: int) -> Any:
    return (number for number in range(3))


def _lambda(_: int) -> Any:
    return lambda: None


def _lock(_: int) -> Any:
    return threading.Lock()


def _local_instance(_: int) -> Any:
    class Local:
        pass

    return Local()


class Refuses:
    """An object whose own state cannot be taken."""

    def __getstate__(self) -> object:
        raise OSError("the file behind this is closed")


def _refuses(_: int) -> Any:
    return Refuses()


def _open_file(_: int) -> Any:
    return open(__file__)


CANNOT = [_generator, _lambda, _lock, _local_instance, _refuses, _open_file]


@dataclass
class Poisoned:
    """A collate whose batch with sample 2 holds something that cannot be sent."""

    make: Callable[[int], Any]
    shape: str = "mapping"

    def __call__(self, samples: list[int]) -> Any:
        poison = self.make(0) if 2 in samples else None
        match self.shape:
            case "mapping":
                return {"rows": torch.tensor(samples), "later": poison}
            case "deep":
                return {"rows": torch.tensor(samples), "list": [0, {"x": (1, poison)}]}
            case "dataclass":
                return Record(torch.tensor(samples), "n", {"more": poison})
            case "object":
                held = Plain(torch.tensor(samples), "n")
                held.label = poison
                return held
            case "bare":
                return poison if poison is not None else samples
        raise AssertionError(self.shape)


def events_of(loader: torch.utils.data.DataLoader) -> list[Any]:
    """List batches and errors as they come, going on after errors."""
    iterator, seen = iter(loader), []
    while len(seen) < 50:
        try:
            seen.append(next(iterator))
        except StopIteration:
            return seen
        except Exception as error:
            seen.append(error)
    raise AssertionError("the epoch does not end")


@pytest.mark.parametrize("make", CANNOT, ids=lambda make: make.__name__)
def test_a_batch_that_cannot_be_sent_is_an_error_that_says_what_and_where(
    make: Callable[[int], Any], ours: LoaderClass
) -> None:
    loader = ours(MapRows(8), batch_size=2, num_workers=2, collate_fn=Poisoned(make))
    seen = events_of(loader)
    assert len(seen) == 4
    for number in (0, 2, 3):
        assert seen[number]["rows"].tolist() == [2 * number, 2 * number + 1]
    error = seen[1]
    assert isinstance(error, Exception)
    text = whole_text(error)
    assert re.search(r"""batch\[["']later["']\]""", text), text
    assert re.search(r"\b2\b.*\b3\b", text), text
    assert re.search(r"worker\D*1\b", text, re.IGNORECASE), text


@pytest.mark.parametrize(
    ("shape", "path"),
    [
        ("deep", r"""batch\[["']list["']\]\[1\]\[["']x["']\]\[1\]"""),
        ("dataclass", r"""batch\.extra\[["']more["']\]"""),
        ("object", r"batch\.label"),
        ("bare", r"\bbatch\b"),
    ],
)
def test_the_path_inside_the_batch_is_named(shape: str, path: str, ours: LoaderClass) -> None:
    collate = Poisoned(_generator, shape)
    seen = events_of(ours(MapRows(6), batch_size=2, num_workers=1, collate_fn=collate))
    assert [isinstance(each, Exception) for each in seen] == [False, True, False]
    assert re.search(path, whole_text(seen[1])), whole_text(seen[1])
    assert "generator" in whole_text(seen[1])


def test_a_batch_that_cannot_be_sent_does_not_matter_without_workers(
    loader_class: LoaderClass,
) -> None:
    loader = loader_class(MapRows(4), batch_size=2, collate_fn=Poisoned(_generator))
    assert list(list(loader)[1]["later"]) == [0, 1, 2]


def rebuild_only_in_a_worker() -> "OneWay":
    """Rebuild a one-way object; the main process cannot."""
    raise LookupError("this can not be rebuilt here")


class OneWay:
    """An object that can be taken apart but not put together again."""

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuild_only_in_a_worker, ()


def _one_way(_: int) -> Any:
    return OneWay()


def test_a_batch_that_cannot_be_rebuilt_is_an_error_and_the_epoch_goes_on(
    ours: LoaderClass,
) -> None:
    loader = ours(MapRows(8), batch_size=2, num_workers=2, collate_fn=Poisoned(_one_way))
    seen = events_of(loader)
    assert [isinstance(each, Exception) for each in seen] == [False, True, False, False]
    text = whole_text(seen[1])
    assert "this can not be rebuilt here" in text
    assert re.search(r"\b2\b.*\b3\b", text), text
    assert re.search(
        r"unpickle here, in rebuild_only_in_a_worker \(test_unsendable.py:\d+\)", text
    ), text


def test_an_object_whose_own_pickling_fails_is_named_with_what_it_raised(
    ours: LoaderClass,
) -> None:
    loader = ours(MapRows(4), batch_size=2, num_workers=1, collate_fn=Poisoned(_truncated))
    text = whole_text(events_of(loader)[1])
    assert re.search(
        r"""batch\[["']later["']\] is a Picture, whose own pickling raised OSError""", text
    )
    assert "likely cause  OSError: the picture is truncated\n" in text
    assert "in __getstate__" in text  # where
    assert "lambdas" not in text


class Picture:
    """A picture that is read when it is needed; it holds what pickle does not know."""

    def __init__(self) -> None:
        self.handle = threading.Lock()

    def __getstate__(self) -> object:
        raise OSError("the picture is truncated")


def _truncated(_: int) -> Any:
    return Picture()


def test_a_recursion_too_deep_to_send_is_an_error(ours: LoaderClass) -> None:
    loader = ours(MapRows(6), batch_size=2, num_workers=1, collate_fn=Poisoned(_too_deep))
    seen = events_of(loader)
    assert [isinstance(each, Exception) for each in seen] == [False, True, False]


def _too_deep(_: int) -> Any:
    nested: list[Any] = []
    for _ in range(300 * sys.getrecursionlimit()):  # from Python 3.14 on the C stack is the limit
        nested = [nested]
    return nested
