"""An exception comes to the loop as its own type, with its message, attributes and where it arose.

torch's side of it: the type and the first line, for exceptions made from one string. The rest, all
that takes the `ours` fixture, is ours only: torch rebuilds an exception from its text alone.
"""

import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset, get_worker_info

from .observe import (
    Batch,
    End,
    Error,
    LoaderClass,
    describe,
    error_of,
    first_line,
    notes,
    watch,
    whole_text,
)
from .programs import MapRows, as_list


class OneString(Exception):
    """Made from one string, as most are."""


class TwoArguments(Exception):
    """Made from two arguments, neither of them the message."""

    def __init__(self, url: str, status: int) -> None:
        super().__init__(f"{url} answered {status}")
        self.url = url
        self.status = status


class TwoPassed(Exception):
    """Made from two arguments that are also its args."""

    def __init__(self, url: str, status: int) -> None:
        super().__init__(url, status)
        self.url = url
        self.status = status


class KeywordOnly(Exception):
    """Cannot be made from positional arguments at all."""

    def __init__(self, *, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


class TakesNothing(Exception):
    """Rejects any argument."""

    def __init__(self) -> None:
        super().__init__("made from nothing")


class IgnoresArgument(Exception):
    """Ignores what it is given and says something of its own."""

    def __init__(self, _: object = None) -> None:
        super().__init__("always the same words")


class WithMessage(Exception):
    """Has a class attribute `message`, as older libraries do."""

    message = "the class's own message"

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class WithAttributes(ValueError):
    """Carries facts set after it was made."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.facts: dict[str, Any] = {}


class OwnText(Exception):
    """Says more than its arguments."""

    def __init__(self, part: str) -> None:
        super().__init__(part)
        self.part = part

    def __str__(self) -> str:
        return f"<{self.part}>"


class HoldsLock(Exception):
    """Holds something that cannot travel."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


class WithSlots(Exception):
    """Keeps its facts in slots."""

    __slots__ = ("code",)

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.code = code


def raise_os_error() -> None:
    raise FileNotFoundError(2, "No such file or directory", "/no/where")


def raise_with_facts() -> None:
    error = WithAttributes("the facts matter")
    error.facts = {"row": 7, "names": ["a"]}
    raise error


def raise_unicode_error() -> None:
    b"\xff\xfe".decode("utf-8")


def raise_group() -> None:
    raise ExceptionGroup("two at once", [ValueError("first"), KeyError("second")])


def raise_cause() -> None:
    try:
        raise LookupError("the root of it")
    except LookupError as error:
        raise OneString("what came of it") from error


def raise_context() -> None:
    try:
        raise LookupError("the root of it")
    except LookupError:
        raise OneString("while handling")  # noqa: B904 - the implicit context is what is tested


def raise_local() -> None:
    class LocalError(Exception):
        pass

    raise LocalError("born in a function")


def raise_slots() -> None:
    raise WithSlots("slotted", 9)


def thrower(error: BaseException) -> Callable[[], None]:
    """Make a function that raises a fresh copy of nothing: the very exception given."""

    def throw() -> None:
        raise error

    return throw


@dataclass
class Throws:
    """A map-style dataset; one index calls a function that raises."""

    throw: Callable[[], None]
    bad: int = 3
    length: int = 8

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        if index == self.bad:
            self.throw()
        return index


def failing(loader_class: LoaderClass, throw: Callable[[], None], workers: int = 2) -> Any:
    """Give the exception that sample 3, the second of batch 1, raises."""
    loader = loader_class(Throws(throw), batch_size=2, num_workers=workers, collate_fn=as_list)
    return error_of(loader)


# --- torch's words for exceptions made from one string -----------------------------------------

ONE_STRING = [ValueError, RuntimeError, TypeError, IndexError, OneString, ArithmeticError]


@pytest.mark.parametrize("kind", ONE_STRING)
def test_an_exception_made_from_one_string_carries_torchs_phrase_and_the_traceback(
    kind: type[Exception], loader_class: LoaderClass
) -> None:
    error = failing(loader_class, thrower(kind("the message")))
    assert type(error) is kind
    assert first_line(error) == f"Caught {kind.__name__} in DataLoader worker process 1."
    assert str(error).split("\n")[1] == "Original Traceback (most recent call last):"
    assert "in __getitem__" in str(error)
    assert str(error).rstrip().endswith("the message")


@pytest.mark.parametrize("kind", ONE_STRING)
@pytest.mark.parametrize("bad", [0, 3, 7])
def test_our_notes_name_the_sample_and_the_worker(
    kind: type[Exception], bad: int, ours: LoaderClass
) -> None:
    dataset = Throws(thrower(kind("the message")), bad)
    error = error_of(ours(dataset, batch_size=2, num_workers=2))
    assert type(error) is kind
    assert_names(error, index=bad, worker=bad // 2 % 2)


def assert_names(error: BaseException, index: int, worker: int) -> None:
    """Hold that the notes name the sample and the worker."""
    text = notes(error)
    assert re.search(rf"\b{index}\b", text), text
    assert re.search(rf"worker\D*{worker}\b", text, re.IGNORECASE), text


def test_a_shuffled_epoch_names_the_datasets_own_index(ours: LoaderClass) -> None:
    dataset = Throws(thrower(ValueError("the message")), bad=41, length=64)
    loader = ours(dataset, sampler=[5, 60, 41, 2], batch_size=1, num_workers=1)
    assert_names(error_of(loader), index=41, worker=0)


# --- all other exceptions stay what they are ----------------------------------------------------


def check_os_error(error: Any) -> None:
    assert (error.errno, error.strerror, error.filename) == (
        2,
        "No such file or directory",
        "/no/where",
    )


def check_unicode_error(error: Any) -> None:
    assert (error.encoding, error.object, error.start) == ("utf-8", b"\xff\xfe", 0)


def check_group(error: Any) -> None:
    assert [(type(inner), inner.args) for inner in error.exceptions] == [
        (ValueError, ("first",)),
        (KeyError, ("second",)),
    ]


def attributes(**expected: Any) -> Callable[[Any], None]:
    """Make a check that an exception has the attributes given."""

    def check(error: Any) -> None:
        assert {name: getattr(error, name) for name in expected} == expected

    return check


OWN = {
    "os_error": (raise_os_error, FileNotFoundError, check_os_error),
    "key_error": (thrower(KeyError("missing")), KeyError, attributes(args=("missing",))),
    "key_error_of_a_tuple": (thrower(KeyError((1, 2))), KeyError, attributes(args=((1, 2),))),
    "no_arguments": (thrower(ValueError()), ValueError, attributes(args=())),
    "a_number": (thrower(ValueError(5)), ValueError, attributes(args=(5,))),
    "several": (thrower(ValueError("a", 5)), ValueError, attributes(args=("a", 5))),
    "two_arguments": (
        thrower(TwoArguments("http://x", 503)),
        TwoArguments,
        attributes(url="http://x", status=503),
    ),
    "two_passed": (
        thrower(TwoPassed("http://x", 503)),
        TwoPassed,
        attributes(url="http://x", status=503, args=("http://x", 503)),
    ),
    "keyword_only": (thrower(KeywordOnly(code=3)), KeywordOnly, attributes(code=3)),
    "takes_nothing": (thrower(TakesNothing()), TakesNothing, attributes()),
    "ignores_argument": (thrower(IgnoresArgument()), IgnoresArgument, attributes()),
    "message_attribute": (
        thrower(WithMessage("a detail")),
        WithMessage,
        attributes(detail="a detail", message="the class's own message"),
    ),
    "attributes_set_later": (
        raise_with_facts,
        WithAttributes,
        attributes(facts={"row": 7, "names": ["a"]}),
    ),
    "own_text": (thrower(OwnText("x")), OwnText, attributes(part="x", args=("x",))),
    "slots": (raise_slots, WithSlots, attributes(code=9)),
    "unicode_error": (raise_unicode_error, UnicodeDecodeError, check_unicode_error),
    "group": (raise_group, ExceptionGroup, check_group),
    "syntax_error": (
        lambda: compile("1 +", "typed.txt", "exec"),
        SyntaxError,
        attributes(filename="typed.txt", lineno=1, text="1 +\n"),
    ),
}

WORDS = {
    "os_error": "/no/where",
    "key_error": "missing",
    "two_arguments": "http://x answered 503",
    "keyword_only": "code 3",
    "takes_nothing": "made from nothing",
    "ignores_argument": "always the same words",
    "message_attribute": "a detail",
    "attributes_set_later": "the facts matter",
    "own_text": "<x>",
    "slots": "slotted",
    "unicode_error": "invalid start byte",
    "group": "two at once",
}


@pytest.mark.parametrize("case", sorted(OWN))
def test_an_exception_keeps_its_type_and_attributes(case: str, ours: LoaderClass) -> None:
    throw, kind, check = OWN[case]
    error = failing(ours, throw)
    assert type(error) is kind
    check(error)
    assert WORDS.get(case, "") in str(error)
    assert_names(error, index=3, worker=1)
    # Wherever it is written, torch's phrase and the worker's own traceback are there to read.
    assert f"Caught {kind.__name__} in DataLoader worker process 1" in whole_text(error)
    assert "in __getitem__" in whole_text(error)


@pytest.mark.parametrize("case", sorted(OWN))
def test_without_workers_the_exception_is_the_datasets_own(
    case: str, loader_class: LoaderClass
) -> None:
    throw, kind, check = OWN[case]
    error = failing(loader_class, throw, workers=0)
    assert type(error) is kind
    check(error)
    assert "DataLoader worker" not in str(error)


def test_without_workers_the_exception_is_the_very_object_raised(
    loader_class: LoaderClass,
) -> None:
    mine = OneString("the message")
    error = failing(loader_class, thrower(mine), workers=0)
    assert error is mine
    assert str(error) == "the message"
    assert "Caught" not in whole_text(error)


@pytest.mark.parametrize(
    ("throw", "words"),
    [
        (raise_local, ["LocalError", "born in a function"]),
        (thrower(HoldsLock("it holds a lock")), ["HoldsLock", "it holds a lock"]),
        (thrower(OneString(lambda: None)), ["OneString"]),
    ],
    ids=["local_class", "holds_a_lock", "argument_cannot_travel"],
)
def test_an_exception_that_cannot_travel_is_told_all_the_same(
    throw: Callable[[], None], words: list[str], ours: LoaderClass
) -> None:
    dataset = Throws(throw)
    loader = ours(dataset, batch_size=2, num_workers=2, collate_fn=as_list)
    events = watch(loader)[0]
    assert [type(event) for event in events] == [Batch, Error, Batch, Batch, End]
    error = error_of(loader)
    for word in words:
        assert word in whole_text(error)
    assert "in __getitem__" in whole_text(error)
    assert_names(error, index=3, worker=1)


@pytest.mark.parametrize(
    ("throw", "words"),
    [
        (raise_cause, "direct cause of the following"),
        (raise_context, "During handling of the above exception"),
    ],
    ids=["cause", "context"],
)
def test_the_workers_traceback_shows_what_led_to_the_exception(
    throw: Callable[[], None], words: str, loader_class: LoaderClass
) -> None:
    error = failing(loader_class, throw)
    assert type(error) is OneString
    assert "the root of it" in whole_text(error)
    assert words in whole_text(error)


def test_notes_of_the_dataset_are_kept(ours: LoaderClass) -> None:
    annotated = ValueError("the message")
    annotated.add_note("from file seven")
    assert "from file seven" in notes(failing(ours, thrower(annotated)))


def test_an_exception_can_be_caught_twice(ours: LoaderClass) -> None:
    # Each epoch raises a new object: notes do not pile up.
    dataset = Throws(thrower(ValueError("the message")))
    loader = ours(dataset, batch_size=2, num_workers=1, persistent_workers=True)
    first, second = error_of(loader), error_of(loader)
    assert first is not second
    assert notes(first) == notes(second)


# --- StopIteration is an error, not the end (ours only: to torch's loop it is the end) ----------


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("batch_size", [2, None])
def test_stop_iteration_from_a_sample_is_an_error_and_the_epoch_goes_on(
    workers: int, batch_size: int | None, ours: LoaderClass
) -> None:
    dataset = Throws(thrower(StopIteration("a bare next() in the dataset")))
    loader = ours(dataset, batch_size=batch_size, num_workers=workers, collate_fn=as_list)
    events = watch(loader)[0]
    errors = [event for event in events if isinstance(event, Error)]
    assert [error.kind for error in errors] == [RuntimeError]
    assert sum(isinstance(event, Batch) for event in events) == (3 if batch_size else 7)
    error = error_of(loader)
    assert type(error) is RuntimeError
    assert "StopIteration" in whole_text(error)
    assert re.search(r"\b3\b", whole_text(error))


@pytest.mark.parametrize("workers", [0, 2])
def test_stop_iteration_from_collate_is_an_error(workers: int, ours: LoaderClass) -> None:
    loader = ours(MapRows(6), batch_size=2, num_workers=workers, collate_fn=collate_that_stops)
    events = watch(loader)[0]
    assert [type(event) for event in events] == [Batch, Error, Batch, End]
    assert "StopIteration" in whole_text(error_of(loader))


def collate_that_stops(samples: list[int]) -> list[int]:
    """Let a bare `next()` loose on an exhausted iterator, once."""
    if 2 in samples:
        next(iter([]))
    return samples


# --- every place that can raise -----------------------------------------------------------------


def bad_collate(samples: list[int]) -> list[int]:
    """Refuse the batch of sample 2."""
    if 2 in samples:
        raise OneString("cannot collate")
    return samples


def bad_init(worker: int) -> None:
    """Refuse to begin in worker 0."""
    if worker == 0:
        raise OneString("cannot begin")


@dataclass
class BadIter(IterableDataset):
    """An iterable dataset that cannot be iterated."""

    def __iter__(self) -> Iterator[int]:
        raise OneString("cannot iterate")


@dataclass
class BadMiddle(IterableDataset):
    """A generator that breaks after some values; worker 1 is healthy."""

    before: int = 5

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        start = 0 if info is None else 100 * info.id
        for number in range(start, start + 8):
            if number == self.before:
                raise OneString("the stream broke")
            yield number


class BadGetitems(MapRows):
    """A dataset whose many-at-a-time method raises."""

    def __getitems__(self, indices: list[int]) -> list[int]:
        if 2 in indices:
            raise OneString("cannot fetch many")
        return indices


PLACES: dict[str, dict[str, Any]] = {
    "collate": {"dataset": MapRows(6), "collate_fn": bad_collate},
    "getitems": {"dataset": BadGetitems(6), "collate_fn": as_list},
    "iter": {"dataset": BadIter(), "collate_fn": as_list},
    "generator": {"dataset": BadMiddle(), "collate_fn": as_list},
}


@pytest.mark.parametrize("place", sorted(PLACES))
@pytest.mark.parametrize("workers", [0, 1])
def test_an_exception_of_any_place_has_its_own_type_and_torchs_first_line(
    place: str, workers: int, loader_class: LoaderClass
) -> None:
    error = error_of(loader_class(**PLACES[place], batch_size=2, num_workers=workers))
    assert type(error) is OneString
    if workers:
        assert first_line(error) == "Caught OneString in DataLoader worker process 0."
    else:
        assert "Caught" not in whole_text(error)


@pytest.mark.parametrize("place", ["collate", "getitems"])
def test_an_exception_of_a_whole_batch_names_its_indices(place: str, ours: LoaderClass) -> None:
    error = error_of(ours(**PLACES[place], batch_size=2, num_workers=2))
    assert_names(error, index=2, worker=1)
    assert_names(error, index=3, worker=1)


@pytest.mark.parametrize("kind", ["map", "iterable"])
def test_an_exception_of_worker_init_fn_comes_with_the_first_batch(
    kind: str, loader_class: LoaderClass
) -> None:
    dataset = MapRows(6) if kind == "map" else BadMiddle(before=-1)
    loader = loader_class(dataset, batch_size=2, num_workers=2, worker_init_fn=bad_init)
    seen: list[Any] = []
    error = error_of(seen.append(batch) for batch in loader)
    assert type(error) is OneString
    assert first_line(error) == "Caught OneString in DataLoader worker process 0."
    assert "cannot begin" in str(error)
    assert not seen


def test_an_exception_of_worker_init_fn_names_the_worker(ours: LoaderClass) -> None:
    error = error_of(ours(MapRows(6), batch_size=2, num_workers=2, worker_init_fn=bad_init))
    assert re.search(r"worker\D*0\b", notes(error), re.IGNORECASE)


def test_a_broken_generator_ends_its_own_stream_only(loader_class: LoaderClass) -> None:
    loader = loader_class(BadMiddle(), batch_size=2, num_workers=2, collate_fn=as_list)
    events = watch(loader)[0]
    broken = Error(OneString, "Caught OneString in DataLoader worker process 0.")
    pairs = [[0, 1], [100, 101], [2, 3], [102, 103], broken, [104, 105], [106, 107]]
    expected = [each if isinstance(each, Error) else Batch(describe(each)) for each in pairs]
    assert events == [*expected, End()]


# --- samplers -------------------------------------------------------------------------------------


@dataclass
class BadSampler:
    """A sampler that breaks after some indices."""

    good: int

    def __len__(self) -> int:
        return 50

    def __iter__(self) -> Iterator[int]:
        yield from range(self.good)
        raise OneString("no more indices")


@dataclass
class BadBatchSampler:
    """A batch sampler that breaks after some batches."""

    good: int

    def __len__(self) -> int:
        return 50

    def __iter__(self) -> Iterator[list[int]]:
        for start in range(0, 2 * self.good, 2):
            yield [start, start + 1]
        raise OneString("no more batches")


SAMPLERS: dict[str, Callable[[int], dict[str, Any]]] = {
    "sampler": lambda good: {"sampler": BadSampler(2 * good + 1), "batch_size": 2},
    "batch_sampler": lambda good: {"batch_sampler": BadBatchSampler(good)},
}


def sampler_events(loader_class: LoaderClass, kind: str, good: int, **arguments: Any) -> list[Any]:
    """Run over a sampler that breaks after some good batches."""
    loader = loader_class(MapRows(50), collate_fn=as_list, **SAMPLERS[kind](good), **arguments)
    return watch(loader, see=as_list)[0]


@pytest.mark.parametrize("kind", sorted(SAMPLERS))
@pytest.mark.parametrize("good", [0, 1, 4])
def test_a_samplers_exception_comes_after_the_batches_drawn_before_it(
    kind: str, good: int, loader_class: LoaderClass
) -> None:
    events = sampler_events(loader_class, kind, good)
    assert events[:good] == [Batch([2 * number, 2 * number + 1]) for number in range(good)]
    assert isinstance(events[good], Error)
    assert events[good].kind is OneString
    assert events[good].first_line.startswith("no more")
    assert events[good + 1 :] == [End()]


@pytest.mark.parametrize("kind", sorted(SAMPLERS))
@pytest.mark.parametrize("good", [0, 1, 3, 4, 9])
@pytest.mark.parametrize("in_order", [True, False])
def test_with_workers_a_samplers_exception_costs_no_batch_drawn_before_it(
    kind: str, good: int, in_order: bool, ours: LoaderClass
) -> None:
    # Ours only: torch draws ahead, and loses what it holds when the sampler raises.
    events = sampler_events(ours, kind, good, num_workers=2, in_order=in_order)
    batches = [event.seen for event in events[:good]]
    assert sorted(batches) == [[2 * number, 2 * number + 1] for number in range(good)]
    assert isinstance(events[good], Error)
    assert (events[good].kind, events[good].first_line[:7]) == (OneString, "no more")
    assert events[good + 1 :] == [End()]


def test_a_samplers_own_exception_object_is_raised(ours: LoaderClass) -> None:
    error = error_of(ours(MapRows(9), sampler=BadSampler(3), num_workers=1))
    assert type(error) is OneString
    assert str(error) == "no more indices"


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sampler_that_gives_an_index_out_of_range_is_the_datasets_error(
    workers: int, loader_class: LoaderClass
) -> None:
    loader = loader_class([10, 20], sampler=[0, 5, 1], num_workers=workers, collate_fn=as_list)
    events = watch(loader, see=as_list)[0]
    assert [type(event) for event in events] == [Batch, Error, Batch, End]
    assert events[1].kind is IndexError


# --- nothing is lost ------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_batches_around_an_error_are_all_delivered(workers: int, loader_class: LoaderClass) -> None:
    dataset = MapRows(20, bad=frozenset({5, 6, 13}))
    loader = loader_class(dataset, batch_size=2, num_workers=workers, collate_fn=as_list)
    events = watch(loader, see=as_list)[0]
    expected: list[Any] = [[2 * number, 2 * number + 1] for number in range(10)]
    seen = [event.seen if isinstance(event, Batch) else event.kind for event in events[:-1]]
    for bad in (2, 3, 6):
        expected[bad] = ValueError
    assert seen == expected


def test_batches_loaded_before_an_error_are_delivered_before_it(
    loader_class: LoaderClass,
) -> None:
    # The bad sample is ready long before the slow one in front of it.
    loader = loader_class(SlowFirst(4), batch_size=1, num_workers=2, collate_fn=as_list)
    events = watch(loader, see=as_list)[0]
    assert events[0] == Batch([0])
    assert isinstance(events[1], Error)
    assert events[2:] == [Batch([2]), Batch([3]), End()]


@dataclass
class SlowFirst:
    """Sample 0 takes its time, sample 1 is bad at once."""

    length: int

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        if index == 0:
            threading.Event().wait(0.3)
        if index == 1:
            raise ValueError("bad at once")
        return index


@pytest.mark.parametrize("workers", [1, 2])
def test_every_batch_may_fail_and_the_epoch_still_ends(
    workers: int, loader_class: LoaderClass
) -> None:
    dataset = MapRows(9, bad=frozenset(range(9)))
    events = watch(loader_class(dataset, batch_size=2, num_workers=workers))[0]
    assert [type(event) for event in events] == [Error] * 5 + [End]


@pytest.mark.parametrize("workers", [0, 2])
def test_samples_that_do_not_stack_are_a_runtime_error(
    workers: int, loader_class: LoaderClass
) -> None:
    loader = loader_class(Ragged(6), batch_size=2, num_workers=workers)
    events = watch(loader)[0]
    assert [type(event) for event in events] == [Batch, Error, Batch, End]
    assert events[1].kind is RuntimeError


@dataclass
class Ragged:
    """One sample is shorter than its neighbours."""

    length: int

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.ones(2 if index == 3 else 5)


@pytest.mark.parametrize("workers", [0, 2])
def test_samples_that_default_collate_does_not_know_are_a_type_error(
    workers: int, loader_class: LoaderClass
) -> None:
    error = error_of(loader_class([None, None], batch_size=2, num_workers=workers))
    assert type(error) is TypeError
    assert "default_collate: batch must contain tensors" in str(error)
