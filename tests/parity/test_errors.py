"""An exception comes to the loop as its own type, with its message, attributes and where it arose.

torch's side of it: the type and the first line, for exceptions made from one string. The rest, all
that takes the `ours` fixture, is ours only: torch rebuilds an exception from its text alone.
"""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from .observe import (
    Batch,
    End,
    Error,
    LoaderClass,
    assert_names,
    error_of,
    first_line,
    notes,
    watch,
    whole_text,
)
from .programs import OneString, Throws, as_list, thrower


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


def test_a_shuffled_epoch_names_the_datasets_own_index(ours: LoaderClass) -> None:
    dataset = Throws(thrower(ValueError("the message")), bad=41, length=64)
    loader = ours(dataset, sampler=[5, 60, 41, 2], batch_size=1, num_workers=1)
    assert_names(error_of(loader), index=41, worker=0)


# --- all other exceptions stay what they are ---------------------------------------------------


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
