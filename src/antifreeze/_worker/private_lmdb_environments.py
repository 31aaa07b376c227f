"""LMDB environments that were opened before the fork: each worker opens its own in their place.

What a forked process reads by its parent's environment takes a slot of the shared table of readers
in the parent's name. py-lmdb ends no transaction of another process, so each read keeps its slot
until the parent ends: after 126 of them nobody can read any more, the parent no more than others.

1. Only what is open for reading, locks, and is held in places that can be set: attributes, dicts
   and lists. A transaction or a cursor in the dataset belongs to the environment it came from, so
   then all stays as it is.
2. The inherited one is never closed, nor is its destructor run. To close it would end the parent's
   transactions: their slots are freed in memory that both share, and a writer may then overwrite
   what the parent still reads. And whoever closes a file loses all locks that it has on it, those
   of the new environment as well.
3. By its path may be found another file than the parent has open. Then all stays as it is.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator
from types import MemberDescriptorType
from typing import Any

from .._core.frozen_values import frozen
from .._core.limits import LIMITS
from .._linux.open_descriptors import own_descriptors, own_path, own_target
from .._loading.dataset_walk import inside, things_in
from .lmdb_database_names import name_of

_ITEMS = LIMITS.searches.dataset_items

# The least room for named databases: how much the inherited one has is not told. So much of it
# costs a transaction 0.1 us.
_ROOM = 128
_MOST_ROOM = 1024  # where the main database may consist of nothing but names
_kept: list[Reopening] = []  # by this process: their environments must not be collected
_own: set[str] = set()  # paths of environments that this process has opened in their place


@frozen
class Reopening:
    """How an environment is to be opened by each worker."""

    inherited: Any
    path: str
    options: dict[str, Any]
    files: tuple[tuple[int, int], ...]  # that the inherited one has open: data, and locks
    databases: tuple[tuple[Any, bytes | None], ...]  # handles of it, with their names
    pid: int  # who has it from before the fork


def to_reopen(dataset: Any) -> tuple[Reopening, ...]:
    """Return the environments in a dataset that forked workers can open anew. Never raises."""
    try:
        module = _known_module()
        return () if module is None else tuple(_judged(dataset, module))
    except Exception:  # of LMDB: closed, or broken already
        return ()


def reopen(environments: tuple[Reopening, ...], dataset: Any) -> None:
    """Put new environments in the place of those that were inherited. Where that fails they stay,
    and errors of theirs are explained."""
    for each in environments:
        if each.pid != os.getpid():  # else this process has opened it
            with contextlib.suppress(Exception):
                _reopen(each, dataset)


def is_reopened() -> bool:
    """Whether this process has an environment of its own in the place of an inherited one."""
    return bool(_own)


def _known_module() -> Any:
    """Return the module, if it is used, and one of those whose ways are known."""
    module = sys.modules.get("lmdb.cpython")
    package = sys.modules.get("lmdb")
    if (
        module is None
        or package is None
        or vars(package).get("Environment") is not module.Environment
    ):
        return None
    # From 2 on it refuses to open a file twice; in 2, by a set that only its own code can see.
    major = str(vars(package).get("__version__", "")).partition(".")[0]
    return module if major in ("0", "1") or "lmdb._envid" in sys.modules else None


def _judged(dataset: Any, module: Any) -> Iterator[Reopening]:
    found: dict[int, Any] = {}
    handles = []
    for _, thing in things_in((dataset,)):
        kind = type(thing)
        if kind is module.Environment:
            found[id(thing)] = thing
        elif kind is module._Database:
            handles.append(thing)
        elif kind in (module.Transaction, module.Cursor, module._Iterator):
            return
    locking = [env for env in found.values() if _reads_and_locks(env)]
    names = {
        id(db): [(env, *name) for env in locking if (name := name_of(db, env))] for db in handles
    }
    if not all(len(which) == 1 for which in names.values()):
        return
    if len({os.path.realpath(env.path()) for env in locking}) < len(locking):
        return  # one of them has been replaced on the disk
    for env in locking:
        its = [(db, which[0][1]) for db in handles if (which := names[id(db)])[0][0] is env]
        if all(_can_be_set(dataset, thing) for thing in (env, *(db for db, _ in its))):
            path, options = env.path(), _options(env)
            if _are_open(path, options):
                files = tuple(map(_identity, _names(path, options)))
                yield Reopening(env, path, options, files, tuple(its), os.getpid())


def _reads_and_locks(env: Any) -> bool:
    flags = env.flags()
    return bool(flags["readonly"] and flags["lock"])


def _options(env: Any) -> dict[str, Any]:
    flags: dict[str, Any] = env.flags()
    told, entries = env.info(), env.stat()["entries"]
    return flags | {
        "map_size": told["map_size"],
        "max_readers": told["max_readers"],
        "max_dbs": max(_ROOM, entries if entries <= _MOST_ROOM else 0),
        "create": False,
    }


def _names(path: str, options: dict[str, Any]) -> tuple[str, str]:
    """Return where an environment has its data, and its locks."""
    if options["subdir"]:
        return f"{path}/data.mdb", f"{path}/lock.mdb"
    return path, f"{path}-lock"


def _are_open(path: str, options: dict[str, Any]) -> bool:
    """Whether this process has those files open that are there now, and none that was there
    before."""
    names = _names(path, options)
    gone = {f"{os.path.realpath(name)} (deleted)" for name in names}
    opened = set()
    for number in own_descriptors():
        with contextlib.suppress(OSError):  # closed meanwhile
            if own_target(number) in gone:
                return False
            opened.add(_identity(own_path(number)))
    return opened.issuperset(_identity(name) for name in names)


def _identity(path: str) -> tuple[int, int]:
    # Never by opening it: to close it again would give up all locks that this process has on it.
    told = os.stat(path)
    return told.st_dev, told.st_ino


def _can_be_set(dataset: Any, wanted: Any) -> bool:
    """Whether all places that hold something are such that can be set."""
    for thing in _containers(dataset):
        holding = _holds(thing, wanted)
        if holding and (
            holding != sum(1 for _ in _places(thing, wanted))
            or (issubclass(type(thing), dict | list | deque) and len(thing) > _ITEMS)
        ):
            return False
    return True


def _holds(thing: Any, wanted: Any) -> int:
    """Return in how many places an object itself holds something."""
    return sum(inner is wanted for _, inner in inside("", thing))


def _containers(dataset: Any) -> Iterator[Any]:
    yield dataset
    for _, thing in things_in((dataset,)):
        yield thing


def _places(thing: Any, wanted: Any) -> Iterator[Callable[[Any], object]]:
    """Yield a setter for each place in an object that holds something; none of them is a method
    that its class may have made its own."""
    kind: Any = type(thing)
    if issubclass(kind, dict):
        for key, inner in itertools.islice(dict.items(thing), _ITEMS):
            if inner is wanted:
                yield functools.partial(dict.__setitem__, thing, key)
    for base in (list, deque):
        if issubclass(kind, base):
            for place, inner in enumerate(itertools.islice(base.__iter__(thing), _ITEMS)):
                if inner is wanted:
                    yield functools.partial(base.__setitem__, thing, place)
    with contextlib.suppress(AttributeError):  # it has none
        attributes = object.__getattribute__(thing, "__dict__")
        if type(attributes) is dict:
            for name, inner in attributes.items():
                if inner is wanted:
                    yield functools.partial(dict.__setitem__, attributes, name)
    for each in kind.__mro__:
        for slot in vars(each).values() if "__slots__" in vars(each) else ():
            if type(slot) is MemberDescriptorType:
                with contextlib.suppress(AttributeError):  # it was never set
                    if slot.__get__(thing) is wanted:
                        yield functools.partial(slot.__set__, thing)


def _reopen(each: Reopening, dataset: Any) -> None:
    if tuple(map(_identity, _names(each.path, each.options))) != each.files:
        return
    _kept.append(each)  # first: whatever comes, it is not collected
    with _unguarded():
        env = type(each.inherited)(each.path, **each.options)
    try:
        env.reader_check()  # else those who end in a transaction fill the table at last
        databases = [(db, env.open_db(name, create=False)) for db, name in each.databases]
    except BaseException:
        env.close()
        raise
    for old, new in ((each.inherited, env), *databases):
        # All of them, before one is set: what holds them is found by what it holds.
        holders = [thing for thing in _containers(dataset) if _holds(thing, old)]
        for put in [put for thing in holders for put in _places(thing, old)]:
            put(new)
    _own.add(each.path)


@contextlib.contextmanager
def _unguarded() -> Iterator[None]:
    """Have py-lmdb open a file that it knows as open in this process, by one that is never used
    again. The new environment is known by the file as well, and forgets it when it is closed."""
    guard: Any = sys.modules.get("lmdb._envid")
    if guard is None:
        yield
        return
    keys = guard.env_keys
    first = iter((True,))

    def env_keys(path: Any, subdir: Any) -> Any:  # asked before it is opened, and after it
        return () if next(first, False) else keys(path, subdir)

    guard.env_keys = env_keys
    try:
        yield
    finally:
        guard.env_keys = keys
