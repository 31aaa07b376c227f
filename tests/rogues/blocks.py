"""Functions that stand in a block, and have themselves looked at from inside it."""

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

from antifreeze._processes.fork_safety.open_blocks import may_hold

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
    with SAFE and LOCK:
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
