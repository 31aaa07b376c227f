"""What a frame may hold by the blocks it stands in, told from its bytecode on every version.

Each function below holds `LOCK`, or could, and has itself looked at from inside its block.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from antifreeze._backends.open_blocks import may_hold

from .shy import Enters, Makes, nobody_asked

LOCK = threading.Lock()
SHADOWED = threading.Lock()  # which a local variable of this name is not
SAFE, FAST = True, False
NOTES: list[int] = []
log = logging.getLogger(__name__)


class Ends(BaseException):
    """Ends a function that would go on for ever."""


class Seen:
    """Looks at the function that calls it."""

    def __init__(self) -> None:
        self.held: bool | None = None
        self.block: str | None = None

    def __call__(self, error: type[BaseException] | None = None) -> Any:
        block = may_hold(sys._getframe(1))
        self.held, self.block = LOCK.locked(), None if block is None else block.words
        if error is not None:
            raise error


def seen_in(function: Callable[..., None]) -> Seen:
    seen = Seen()
    with contextlib.suppress(Ends, RuntimeError, ValueError):
        function(seen)
    assert seen.held is not None, "it has not looked"
    with contextlib.suppress(RuntimeError):
        LOCK.release()
    return seen


# ---- a lock is held, and the frame shows it ------------------------------------------------------


def chosen(look: Seen) -> None:
    with LOCK if SAFE else contextlib.nullcontext():
        look()


def chosen_the_other_way(look: Seen) -> None:
    with contextlib.nullcontext() if FAST else LOCK:
        look()


def either(look: Seen, lock: Any = LOCK) -> None:
    with lock or contextlib.nullcontext():
        look()


def both(look: Seen) -> None:
    with SAFE and LOCK:  # type: ignore[attr-defined]
        look()


def assigned(look: Seen) -> None:
    with (lock := LOCK):
        look()
    del lock


def captured(look: Seen) -> None:
    SHADOWED = LOCK

    def use() -> Any:
        return SHADOWED

    with SHADOWED:
        look()


def captured_from_around(look: Seen) -> None:
    SHADOWED = LOCK

    def inner() -> None:
        with SHADOWED:
            look()

    inner()


def rebound(look: Seen) -> None:
    lock = LOCK
    with lock:
        lock = threading.Lock()
        look()


def rebound_by_a_loop(look: Seen) -> None:
    for lock in (LOCK,):
        with lock:
            for lock in (threading.Lock(),):  # noqa: B007
                look()


class Owner:
    def __init__(self) -> None:
        self.lock = LOCK

    def rebound_attribute(self, look: Seen) -> None:
        with self.lock:
            self.lock = threading.Lock()
            look()

    def attribute(self, look: Seen) -> None:
        with self.lock:
            look()


def in_a_class(look: Seen) -> None:
    class Body:
        SHADOWED = LOCK
        with SHADOWED:
            look()


def one_of_many(look: Seen) -> None:
    locks = {0: LOCK}
    with locks[0]:
        look()


def else_releases(look: Seen) -> None:
    got = LOCK.acquire()
    try:
        look()
    finally:
        if not got:
            pass
        else:
            LOCK.release()


def releases_after_another_try(look: Seen) -> None:
    LOCK.acquire()
    try:
        look()
    finally:
        try:  # noqa: SIM105
            NOTES.remove(1)
        except ValueError:
            pass
        LOCK.release()


def releases_in_another_try(look: Seen) -> None:
    LOCK.acquire()
    try:
        look()
    finally:
        try:
            NOTES.append(1)
        finally:
            LOCK.release()


def releases_when_another_try_fails(look: Seen) -> None:
    LOCK.acquire()
    try:
        look()
    finally:
        try:
            NOTES.remove(2)
        except ValueError:
            LOCK.release()


def releases_in_a_loop(look: Seen) -> None:
    LOCK.acquire()
    try:
        look()
    finally:
        for each in (LOCK,):
            each.release()


def returns_from_a_finally(look: Seen) -> None:
    LOCK.acquire()
    try:
        look()
    finally:
        return LOCK.release()  # noqa: B012


class Pool:
    """Gives out one thing at a time."""

    def get(self) -> int:
        LOCK.acquire()
        return 1

    def put(self, thing: int) -> None:
        LOCK.release()


class Flag(threading.Event):
    def set(self) -> None:
        LOCK.release()


class Parts(list[int]):
    def append(self, thing: int) -> None:
        LOCK.release()


POOL = Pool()


def puts_back(look: Seen) -> None:
    thing = POOL.get()
    try:
        look()
    finally:
        POOL.put(thing)


def sets(look: Seen, flag: Any = Flag()) -> None:  # noqa: B008
    LOCK.acquire()
    try:
        look()
    finally:
        flag.set()


def appends(look: Seen, parts: Any = Parts()) -> None:  # noqa: B008
    LOCK.acquire()
    try:
        look()
    finally:
        parts.append(1)


def anything_to_raise_again(look: Seen) -> None:
    LOCK.acquire()
    try:
        look()
    except BaseException:
        LOCK.release()
        raise
    LOCK.release()


def a_bare_except(look: Seen) -> None:
    LOCK.acquire()
    try:
        look()
    except:
        POOL.put(1)
        raise


def an_error_with_a_name(look: Seen) -> None:
    LOCK.acquire()
    try:
        look()
    except KeyError:
        pass
    except (Exception, Ends) as error:
        POOL.put(1)
        raise error


def an_error_turned_into_another(look: Seen) -> None:
    LOCK.acquire()
    try:
        look()
    except Exception as error:
        if SAFE:
            POOL.put(1)
        raise RuntimeError("it failed") from error


def raises_again_from_a_finally(look: Seen) -> None:
    LOCK.acquire()
    try:
        look()
    except Exception:
        try:
            POOL.put(1)
        finally:
            raise


def releases_and_goes_on(look: Seen) -> None:
    LOCK.acquire()
    try:
        look()
    except ValueError:
        LOCK.release()


@pytest.mark.parametrize(
    "function",
    [
        chosen,
        chosen_the_other_way,
        either,
        both,
        assigned,
        captured,
        captured_from_around,
        rebound,
        rebound_by_a_loop,
        Owner().rebound_attribute,
        Owner().attribute,
        in_a_class,
        one_of_many,
        else_releases,
        releases_after_another_try,
        releases_in_another_try,
        releases_when_another_try_fails,
        releases_in_a_loop,
        returns_from_a_finally,
        puts_back,
        sets,
        appends,
        anything_to_raise_again,
        a_bare_except,
        an_error_with_a_name,
        an_error_turned_into_another,
        raises_again_from_a_finally,
        releases_and_goes_on,
    ],
)
def test_a_lock_that_a_frame_shows_is_noticed(function: Callable[[Seen], None]) -> None:
    seen = seen_in(function)
    assert seen.held and seen.block is not None


# ---- nothing is held -----------------------------------------------------------------------------


class Client:
    """Sends what it is given, in a thread of its own, as many do."""

    TIMES: list[float] = []

    def __init__(self) -> None:
        self.queue: queue.Queue[Any] = queue.Queue()
        self.simple: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.done = threading.Event()
        self.errors: list[BaseException] = []
        self.lock, self.cond = threading.Lock(), threading.Condition()
        self.queue.put(1)

    def logs_and_goes_on(self, look: Seen) -> None:
        while True:
            try:
                look()
                look(Ends)
            except queue.Empty:
                continue
            except Exception:
                log.exception("it failed")

    def logs_and_raises(self, look: Seen) -> None:
        try:
            look(ValueError)
        except BaseException as error:
            log.debug("it failed: %s", error)
            self.errors.append(error)
            traceback.format_exc()
            raise

    def drains_and_raises(self, look: Seen) -> None:
        """As TensorBoard's writer does."""
        try:
            look(ValueError)
        except Exception as error:
            self.errors.append(error)
            try:
                while True:
                    self.queue.get(False)
                    self.queue.task_done()
            except queue.Empty:
                pass
            raise

    def raises_another(self, look: Seen) -> None:
        """As mlflow's queue does, with a class that it imports only then."""
        try:
            look(ValueError)
        except Exception as error:
            from concurrent.futures import BrokenExecutor

            raise BrokenExecutor(f"it failed: {error}") from error

    def raises_or_goes_on(self, look: Seen) -> None:
        while True:
            try:
                look()
                look(ValueError)
            except Exception:
                if self.done.is_set():
                    raise
                self.reconnect()
                self.done.set()

    def cleans_up_and_ends(self, look: Seen) -> None:
        try:
            look(ValueError)
        except BaseException:
            self.reconnect()

    def reconnect(self) -> None:
        pass

    def tells_of_its_end(self, look: Seen) -> None:
        began = time.monotonic()
        try:
            look()
        finally:
            if self.errors:
                self.queue.task_done()
            self.simple.put(None)
            self.TIMES.append(time.monotonic() - began)
            self.done.set()
            self.state = "ended"

    def with_what_is_free(self, look: Seen) -> None:
        lock = self.lock
        with self.cond, lock, contextlib.suppress(KeyError), open("/dev/null") as file:
            lock.release()
            self.cond.release()
            file.read()
            look()
            self.cond.acquire()
            lock.acquire()

    def with_arguments_that_are_chosen(self, look: Seen) -> None:
        with open("/dev/null" if SAFE else "/dev/zero"):
            look()


class Slotted:
    __slots__ = ("queue",)

    def __init__(self) -> None:
        self.queue: collections.deque[int] = collections.deque()

    def keeps(self, look: Seen) -> None:
        try:
            look()
        finally:
            self.queue.append(1)


@pytest.mark.parametrize(
    "function",
    [
        Client().logs_and_goes_on,
        Client().logs_and_raises,
        Client().drains_and_raises,
        Client().raises_another,
        Client().raises_or_goes_on,
        Client().cleans_up_and_ends,
        Client().tells_of_its_end,
        Client().with_what_is_free,
        Client().with_arguments_that_are_chosen,
        Slotted().keeps,
    ],
)
def test_what_clients_of_services_do_holds_nothing(function: Callable[[Seen], None]) -> None:
    assert seen_in(function).block is None


# ---- the look itself does nothing ----------------------------------------------------------------


def test_objects_of_the_program_are_not_asked() -> None:
    shy, makes = object.__new__(Enters), Makes()

    def enters(look: Seen) -> None:
        with shy:
            look()

    def calls(look: Seen) -> None:
        with makes():
            look()

    def calls_at_last(look: Seen) -> None:
        try:
            look()
        finally:
            if FAST:
                shy.append(1)
                makes.clear()
                shy()  # type: ignore[operator]

    with nobody_asked():
        for function in (enters, calls, calls_at_last):
            assert seen_in(function).block is not None


# ---- nothing is kept, and nothing is lost --------------------------------------------------------


class Thing:
    pass


def test_what_a_function_has_is_not_kept_by_a_look() -> None:
    import weakref

    def works(look: Seen, lock: Any = LOCK) -> None:
        item: Any = Thing()
        seen.append(weakref.ref(item))
        with lock:
            look()
            item = None
            seen.append(seen[0]())

    seen: list[Any] = []
    assert seen_in(works).block is not None
    assert seen[1] is None


def test_what_a_function_makes_of_its_locals_is_left_alone() -> None:
    def keeps(look: Seen, lock: Any = LOCK) -> None:
        first = 1
        mine = locals()
        with lock:
            look()
        kept.append((first, dict(mine)))

    def executes(look: Seen, lock: Any = LOCK) -> None:
        exec("made = 7", globals(), locals())
        with lock:
            look()
        if sys.version_info < (3, 13):  # later, each call makes a new dict
            kept.append(locals()["made"])

    kept: list[Any] = []
    assert seen_in(keeps).block is not None
    assert kept[0][0] == 1 and {"look", "lock", "first"} <= set(kept[0][1])
    assert seen_in(executes).block is not None
    assert kept[1:] in ([7], [])


def test_a_function_that_is_traced_keeps_its_variables() -> None:
    """A debugger waits inside of its trace function, and has all variables set anew after that."""

    def traced(look: Seen, lock: Any = LOCK) -> None:
        first = 1
        with lock:
            first += 1
        after.append((first, lock))

    def trace(frame: Any, what: str, _: Any) -> Any:
        if frame.f_code is traced.__code__:
            blocks.append(may_hold(frame))
            return trace
        return None

    after: list[Any] = []
    blocks: list[Any] = []
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        traced(Seen())
    finally:
        sys.settrace(before)
    assert after == [(2, LOCK)]
    assert any(each is not None for each in blocks)
