"""`install()`, and where to report, for the processes that a program starts by multiprocessing.

A forked one has it anyway. Every other (spawn, forkserver) is sent, with its Process object, a few
words of its parent's: among them, from now on, that antifreeze is installed. It matters to those
that use torch only; the others would pay a second to import it. So the words are bytes until torch
is there: the script, which is run again first, may import it, or the function that the process was
started for.
"""

from __future__ import annotations

import atexit
import pickle
from collections.abc import Callable, Mapping
from multiprocessing import process
from typing import Any

from .._reporting.user_warnings import remark

_KEY = "antifreeze"
_ARRIVE = (
    "__import__('antifreeze.integrations.deferred_install', None, None, ['arrive'])"
    ".arrive(sent, report_to)"
)
_AFTER_ALL_OTHERS = -1000  # among what multiprocessing calls at the end of a process
ReportTo = tuple[str, int]  # a folder, and who reads what is left there: see `_reporting`


class Carried:
    """Is pickled as a call in the other process, which gives one like it."""

    def __init__(
        self, sent: Mapping[str, bytes] | None = None, report_to: ReportTo | None = None
    ) -> None:
        self.report_to = report_to
        self._sent = dict(sent or {})  # to this process, and not opened: there is no torch yet
        self._options: dict[str, Any] = {}
        self._told: set[str] = set()

    def add(self, options: Mapping[str, Any]) -> None:
        self._options.update(options)
        self._told.difference_update(options)

    def __reduce__(self) -> Any:
        # One by one: what cannot be sent, or opened there, must not keep a process from starting.
        sent = self._sent | {name: self._pickled(name) for name in self._options}
        sent = {name: it for name, it in sent.items() if it}
        return eval, (_ARRIVE, {"sent": sent, "report_to": self.report_to})

    def _pickled(self, name: str) -> bytes | None:
        try:
            return pickle.dumps(self._options[name])
        except Exception as error:  # a policy with a lambda, say
            if name not in self._told:
                self._told.add(name)
                remark(
                    f"antifreeze: {name} of install() cannot be sent to processes that are spawned:"
                    f" their loaders do without it ({type(error).__name__}: {error})."
                )
        return None

    def __repr__(self) -> str:
        return f"Carried({self._options})"


def carry(options: Mapping[str, Any], report_to: ReportTo | None = None) -> Carried:
    """Have all processes that are started from now on know these options, too, and where to report.
    Return what they are sent, for who is about to be what this process is known by (see
    `later.arrive`)."""
    words: dict[str, Any] = process.current_process()._config  # type: ignore[attr-defined]
    kept = words.get(_KEY)
    if not isinstance(kept, Carried):
        kept = words[_KEY] = Carried()
    kept.add(options)
    kept.report_to = report_to or kept.report_to
    return kept


def child_name() -> str:
    """Return the name of this process; empty if multiprocessing did not start it."""
    return "" if process.parent_process() is None else process.current_process().name


def call_at_end(function: Callable[[], object]) -> None:
    """Call a function when this process ends, after all that the program does then; twice perhaps.
    Processes that multiprocessing forks run no exit handlers, but what is registered with it."""
    from multiprocessing.util import Finalize

    atexit.register(function)
    Finalize(None, function, exitpriority=_AFTER_ALL_OTHERS)
