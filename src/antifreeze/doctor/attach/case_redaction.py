"""A case without what should not be shared: secrets in URLs, always; and the names of the program's
files, for `ANTIFREEZE_REDACT=1`.

Equal names stay equal, and what a diagnosis depends on stays: devices, pipes, sockets, code, the
folder of a network mount, whether a file was deleted, and that it is a lock file.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import replace
from typing import Any

from ..._reporting.redaction import redacted, without_credentials
from .facts import Case, Look, Process, Thread

_KEPT = re.compile(r"/(dev|proc|sys)(/|$)|.*/(pymp-|listener-)|.*\.(py|pyc|so)(\.[\d.]+)?$")
_END = re.compile(r"( \(deleted\)| \[[^\]]*\])$")
_LOCK = re.compile(r"\.(lock|lck)$")


def without_secrets(case: Case) -> Case:
    """Return a case in which no URL has a user, a password or a query with values. Names of files,
    of functions and of sockets are the program's, and may be URLs or parts of them."""
    found: Case = _changed(case)
    return found


def _changed(value: Any) -> Any:
    if isinstance(value, str):
        return without_credentials(value)
    if isinstance(value, tuple):
        return tuple(map(_changed, value))
    if isinstance(value, list):
        return list(map(_changed, value))
    if isinstance(value, dict):
        return {_changed(name): _changed(each) for name, each in value.items()}
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    fields = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    changed = {name: _changed(each) for name, each in fields.items()}
    return value if changed == fields else replace(value, **changed)


def without_names(case: Case) -> Case:
    """Return a case in which numbers stand for the names of files."""
    hiding = _Hiding(tuple({each for look in case.looks for each in _mounts(look)}))
    return replace(
        case,
        looks=tuple(hiding.look(look) for look in case.looks),
        told=_plain(case.told),
        unseen=tuple(map(redacted, case.unseen)),
    )


def _mounts(look: Look) -> tuple[str, ...]:
    return tuple(each.rpartition(" (")[0] for each in look.machine.network_mounts)


def _plain(value: Any) -> Any:
    """Return JSON with all texts in it redacted."""
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value


class _Hiding:
    def __init__(self, mounts: tuple[str, ...]) -> None:
        self._mounts = sorted((each for each in mounts if len(each) > 1), key=len, reverse=True)
        self._numbers: dict[str, int] = {}

    def look(self, look: Look) -> Look:
        locks = tuple(replace(each, path=self._path(each.path)) for each in look.file_locks)
        processes = tuple(self._process(each) for each in look.processes)
        return replace(look, processes=processes, file_locks=locks)

    def _process(self, process: Process) -> Process:
        opened = tuple(replace(d, target=self._path(d.target)) for d in process.descriptors)
        threads = tuple(self._thread(each) for each in process.threads)
        return replace(process, descriptors=opened, threads=threads)

    def _thread(self, thread: Thread) -> Thread:
        return replace(
            thread, opens=self._path(thread.opens), lock_file=self._path(thread.lock_file)
        )

    def _path(self, text: str) -> str:
        ending = "" if (found := _END.search(text)) is None else found[0]
        path = text.removesuffix(ending)
        if not path.startswith("/") or _KEPT.match(path):
            return text
        number = self._numbers.setdefault(path, len(self._numbers) + 1)
        lock = "" if (found := _LOCK.search(path)) is None else found[0]
        under = next((each for each in self._mounts if path.startswith(f"{each}/")), "")
        return f"{under}/<file {number}>{lock}{ending}"
