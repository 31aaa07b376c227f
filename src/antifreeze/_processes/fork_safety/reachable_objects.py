"""What a worker's code can reach in this process: locks, threads, and which packages it uses.

From the dataset, collate_fn and worker_init_fn: their attributes, their classes, the globals of the
modules that these are written in, and the program's own modules that those import. Packages count
only if code that workers run names them (`used_packages`). Looked at, never asked: no method of the
program's runs. Bounded: in a large program the search ends early, and what
it has not found is met by a worker, if at all (see docs/decisions/clean-process.md).
"""

from __future__ import annotations

import ctypes
import logging
import sys
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from types import FunctionType, MethodType, ModuleType
from typing import Any

from ..._core.frozen_values import frozen
from ..._core.limits import LIMITS
from ..._linux.clock import thread_time
from ..._loading.dataset_walk import ATOMS, inside, is_users
from ..._loading.raw_attributes import (
    class_name,
    declared_module,
    instance_dict,
    is_one_of,
    module_of,
    mro,
    name_of_module,
    namespace,
)
from ..replication.user_code import is_own
from .open_blocks import is_held, owner_of
from .used_packages import UsedPackages

# Looked up for every object of a walk.
_OBJECTS = LIMITS.searches.reached_objects

_LOCKS = (type(threading.Lock()), type(threading.RLock()), threading.Condition, threading.Semaphore)
_FUNCTIONS = (FunctionType, MethodType)


@frozen
class Reached:
    """What was found, each with the path that leads to it."""

    locks: tuple[tuple[str, Any], ...] = ()
    # Threads, and executors that have some. Weakly: the program may drop them.
    threads: tuple[tuple[str, weakref.ref[Any]], ...] = ()
    packages: frozenset[str] = frozenset()  # names, as far as code of workers is known to use them

    def held(self) -> str:
        """Return a lock that somebody holds now, or a thread that is alive, in words; nothing if
        there is none."""
        for path, lock in (*self.locks, *_of_logging()):
            if is_held(lock):
                owner = owner_of(lock)
                return f"{path} is held" + (f" by the thread {owner}" if owner else "")
        for path, thing in self.threads:
            if any(map(_runs_elsewhere, _threads_of(thing()))):
                return f"{path} has a thread, which a fork does not copy"
        return ""


NOTHING_REACHED = Reached()


def addresses_of(deadlock: str) -> set[int]:
    """Return the addresses of a deadlock's locks (`thread:address`, as the kernel tells them)."""
    return {int(each.rpartition(":")[2], 16) for each in deadlock.split()}


def lock_at(reached: Reached, deadlock: str) -> str:
    """Return the path of the lock at one of these addresses, if it is among those that were
    reached. Not from Python 3.13 on, whose locks wait elsewhere."""
    if sys.version_info >= (3, 13):
        return ""
    addresses = addresses_of(deadlock)
    for path, lock in reached.locks:
        inner = instance_dict(lock).get("_lock", lock)
        if is_one_of(type(inner), *_LOCKS[:2]):
            behind_header = id(inner) + 2 * ctypes.sizeof(ctypes.c_void_p)
            if ctypes.c_void_p.from_address(behind_header).value in addresses:
                return path
    return ""


def reached_from(named: dict[str, Any]) -> Reached:
    """Search from these things, by their names."""
    return _Search().run(named)


def _of_logging() -> Iterator[tuple[str, Any]]:
    """Yield the lock that a fork itself takes: it would wait for its holder."""
    if (lock := getattr(logging, "_lock", None)) is not None:
        yield "logging's own lock", lock


def _threads_of(thing: Any) -> Iterator[threading.Thread]:
    """Yield a thread, or those of an executor of the standard library."""
    kind = type(thing)
    if issubclass(kind, threading.Thread):
        yield thing
    elif issubclass(kind, ThreadPoolExecutor):
        threads = instance_dict(thing).get("_threads")
        for each in list(threads) if type(threads) is set else ():
            if issubclass(type(each), threading.Thread):
                yield each


def _runs_elsewhere(thread: threading.Thread) -> bool:
    return threading.Thread.is_alive(thread) and thread is not threading.current_thread()


class _Search:
    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._modules: dict[str, ModuleType] = {}
        self._locks: list[tuple[str, Any]] = []
        self._threads: list[tuple[str, weakref.ref[Any]]] = []
        self._give_up = thread_time() + LIMITS.forking.search_cpu_s

    def run(self, named: dict[str, Any]) -> Reached:
        self._walk([(name, thing) for name, thing in named.items() if thing is not None])
        used = UsedPackages(thread_time() + LIMITS.forking.search_cpu_s)
        for thing in named.values():
            used.look_at(thing)
        done: set[str] = set()
        while left := [name for name in self._modules if name not in done][:1]:
            done.add(left[0])
            if len(done) > LIMITS.searches.reached_modules or self._is_over():
                break
            self._walk_module(self._modules[left[0]], used.names)
        return Reached(tuple(self._locks), tuple(self._threads), frozenset(used.found))

    def _is_over(self) -> bool:
        return len(self._seen) > _OBJECTS or thread_time() > self._give_up

    def _walk(self, level: list[tuple[str, Any]]) -> None:
        for _ in range(LIMITS.searches.reached_depth):
            following: list[tuple[str, Any]] = []
            for path, thing in level:
                if self._is_over():
                    return
                if not issubclass(type(thing), ATOMS) and self._take(path, thing):
                    following += inside(path, thing)
            level = following

    def _take(self, path: str, thing: Any) -> bool:
        """Note one thing. Return whether to look inside."""
        if id(thing) in self._seen:
            return False
        self._seen.add(id(thing))
        kind: Any = type(thing)
        if issubclass(kind, _LOCKS):
            self._locks.append((path, thing))
            return False  # those that wait for a condition have a lock each, which is held
        if issubclass(kind, threading.Thread | Executor):
            self._threads.append((path, weakref.ref(thing)))
            return False
        if kind is ModuleType:
            self._note_module(name_of_module(thing))
            return False
        if issubclass(kind, type):
            self._note_class(thing)
            return False
        if is_one_of(kind, *_FUNCTIONS):
            self._note_module(module_of(thing))
        else:
            self._note_class(kind)
        return True

    def _note_class(self, kind: Any) -> None:
        for each in mro(kind):
            name = declared_module(each)
            self._note_module(name)
            if is_users(name) and id(each) not in self._seen:
                self._seen.add(id(each))
                inner = list(namespace(each).items())
                for path, value in [(f"{class_name(each)}.{at}", v) for at, v in inner]:
                    if issubclass(type(value), (*_LOCKS, threading.Thread, Executor)):
                        self._take(path, value)

    def _note_module(self, name: str) -> None:
        module = sys.modules.get(name)
        if module is not None and is_users(name) and name not in self._modules:
            self._modules[name] = module

    def _walk_module(self, module: ModuleType, names: set[str] | None) -> None:
        """Search a module's globals; inside of objects only where workers' code names them."""
        here = name_of_module(module)
        own = is_own(here)
        roots = []
        for name, value in list(instance_dict(module).items()):
            if name.startswith("__"):
                continue
            kind = type(value)
            if issubclass(kind, type) or is_one_of(kind, ModuleType, *_FUNCTIONS):
                used = name_of_module(value) if kind is ModuleType else module_of(value)
                if own and is_own(used):  # what a library imports is its own affair
                    self._note_module(used)
            elif issubclass(kind, _LOCKS):
                self._take(f"{here}.{name}", value)
            elif not issubclass(kind, ATOMS) and (names is None or name in names):
                roots.append((f"{here}.{name}", value))
        self._walk(roots)
