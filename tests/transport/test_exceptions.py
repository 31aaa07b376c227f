"""Exceptions cross with all they have."""

from __future__ import annotations

import pickle
import threading
import traceback
from typing import Any

import pytest

from antifreeze._loading.fetch import Fetcher
from antifreeze._loading.job import Job
from antifreeze._transport.exceptions import pack_exception, rebuild_exception
from antifreeze._transport.ticket_codec import decode_tickets
from antifreeze._transport.traceback_frames import formatted
from antifreeze.errors import (
    AntifreezeError,
    LoaderClosed,
    TransportFailed,
    WorkerCrashed,
    WorkerFailed,
)

WHERE = "in DataLoader worker process 3"


class TwoArguments(Exception):
    def __init__(self, status: int, url: str) -> None:
        super().__init__(f"{status} at {url}")
        self.status, self.url = status, url


class KeywordOnly(Exception):
    def __init__(self, *, code: int) -> None:
        super().__init__()
        self.code = code

    def __str__(self) -> str:
        return f"code {self.code}"


class HoldsALock(ValueError):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()
        self.text = text


class IgnoresItsArgument(Exception):
    def __init__(self, text: str) -> None:
        super().__init__("always this")


def travel(error: BaseException) -> Any:
    try:
        raise error
    except BaseException as raised:
        packed = pack_exception(raised, WHERE, ("sample 7",))
    return rebuild_exception(pickle.loads(pickle.dumps(packed)))


def told(error: BaseException) -> str:
    return "\n".join([str(error), *getattr(error, "__notes__", [])])


@pytest.mark.parametrize(
    "error",
    [
        ValueError("bad"),
        KeyError("missing"),
        OSError(2, "No such file", "x.jpg"),
        TwoArguments(404, "http://x"),
        KeywordOnly(code=5),
        HoldsALock("held"),
        IgnoresItsArgument("x"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"),
        ExceptionGroup("both", [ValueError("a"), TypeError("b")]),
        StopIteration(3),
    ],
    ids=lambda error: type(error).__name__,
)
def test_type_words_and_torchs_phrase_arrive(error: BaseException) -> None:
    arrived = travel(error)
    assert type(arrived) is type(error)
    assert f"Caught {type(error).__name__} {WHERE}." in told(arrived)
    assert str(error) in told(arrived)
    assert "Traceback (most recent call last)" in told(arrived)
    assert arrived.__notes__[-1] == "sample 7"


def test_our_lines_before_the_users_are_left_out() -> None:
    def load() -> None:
        raise ValueError("bad")

    job = Job(
        dataset=[1, 2],
        streams=False,
        auto_collation=True,
        collate_fn=lambda samples: load(),
        drop_last=False,
        num_workers=0,
        base_seed=0,
        init_fn=None,
    )
    with pytest.raises(ValueError, match="bad") as caught:
        Fetcher(job).load([0], 0)
    assert "fetch.py" in "".join(traceback.format_exception(caught.value))
    trace = caught.value.__traceback__
    assert trace is not None
    text = formatted(caught.value.with_traceback(trace.tb_next))  # as a worker's begins
    assert "fetch.py" not in text and "in load\n" in text


def test_a_mistake_of_ours_keeps_its_lines() -> None:
    with pytest.raises(TypeError) as caught:
        decode_tickets(7)
    trace = caught.value.__traceback__
    assert trace is not None
    ours = caught.value.with_traceback(trace.tb_next)
    assert "in decode_tickets" in formatted(ours)


def test_a_message_of_one_string_begins_with_torchs_phrase() -> None:
    first = str(travel(ValueError("bad"))).splitlines()[0]
    assert first == f"Caught ValueError {WHERE}."


def test_attributes_arrive() -> None:
    assert travel(OSError(2, "No such file", "x.jpg")).errno == 2
    assert travel(OSError(2, "No such file", "x.jpg")).filename == "x.jpg"
    assert travel(TwoArguments(404, "http://x")).status == 404
    assert travel(KeywordOnly(code=5)).code == 5
    assert travel(HoldsALock("held")).text == "held"
    assert travel(KeyError("missing")).args == ("missing",)


def test_a_class_nobody_can_find_comes_back_as_the_nearest_one_above_it() -> None:
    class Local(OSError):
        pass

    class LocalRoot(Exception):
        pass

    assert type(travel(Local("gone"))) is OSError
    assert type(travel(LocalRoot("gone"))) is RuntimeError
    assert "Caught LocalRoot" in told(travel(LocalRoot("gone")))


@pytest.mark.parametrize("kind", [WorkerCrashed, WorkerFailed, TransportFailed, LoaderClosed])
def test_our_own_errors_survive_pickling_and_are_runtime_errors(kind: type[Exception]) -> None:
    error = pickle.loads(pickle.dumps(kind("what happened")))
    assert type(error) is kind
    assert isinstance(error, AntifreezeError) and isinstance(error, RuntimeError)
