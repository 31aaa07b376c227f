"""A worker from a clean process sees what the program has told libraries by calls, or put there."""

from __future__ import annotations

import builtins
import calendar
import collections.abc
import copyreg
import csv
import functools
import gettext
import logging
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import _pytree

from antifreeze import DataLoader

from .clean import another_thread, ask

Undo = Callable[[], object]
_listdir = os.listdir


class Pair:
    """A class of the program's own, which libraries know nothing of."""

    def __init__(self, left: Any = None, right: Any = None) -> None:
        self.left, self.right = left, right

    def __len__(self) -> int:
        return 2


class Chatty(logging.Logger):
    def chat(self) -> str:
        return f"chatting at {self.level}, {self.pace}"

    pace = "slowly"


def _reduce(pair: Pair) -> Any:
    return Pair, (pair.left, "reduced")


def _names(path: str = ".") -> list[str]:
    return sorted(_listdir(path))


def _hook(kind: Any, error: Any, trace: Any) -> None:
    sys.__excepthook__(kind, error, trace)


def _set(place: Any, name: str, value: Any) -> Undo:
    before = getattr(place, name)
    setattr(place, name, value)
    return lambda: setattr(place, name, before)


def _partial() -> Undo:
    return _set(np, "load", functools.partial(np.load, allow_pickle=True))


def _gettext() -> Undo:
    gettext.install("of_this_test")
    return lambda: delattr(builtins, "_")


def _logger() -> Undo:
    logging.setLoggerClass(Chatty)
    logger: Any = logging.getLogger("chatty")
    logger.pace = "quickly"

    def undo() -> None:
        logging.setLoggerClass(logging.Logger)
        del logging.root.manager.loggerDict["chatty"]

    return undo


def _nodes() -> Undo:
    _pytree.register_pytree_node(
        Pair, lambda pair: ([pair.left, pair.right], None), lambda both, _: Pair(*both)
    )
    return lambda: _pytree.SUPPORTED_NODES.pop(Pair)


def _sequence() -> Undo:
    collections.abc.Sequence.register(Pair)
    return lambda: None  # that cannot be undone


def _printing() -> Undo:
    torch.set_printoptions(precision=2)
    return lambda: torch.set_printoptions("default")


def _dialect() -> Undo:
    csv.register_dialect("of this test", delimiter=";")
    return lambda: csv.unregister_dialect("of this test")


def _weekday() -> Undo:
    calendar.setfirstweekday(6)
    return lambda: calendar.setfirstweekday(0)


def _ignored() -> Undo:
    before = signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    return lambda: signal.signal(signal.SIGUSR2, before)


def _reducer() -> Undo:
    copyreg.pickle(Pair, _reduce)
    return lambda: copyreg.dispatch_table.pop(Pair)


def _attribute() -> Undo:
    sys.of_this_test = [1]
    return lambda: delattr(sys, "of_this_test")


def _chat() -> Any:
    logger = logging.root.manager.loggerDict.get("chatty")
    return logger.chat() if isinstance(logger, Chatty) else None


# What the program changes, and how a worker sees it.
CHANGES: dict[str, tuple[Callable[[], Undo], Callable[[], Any]]] = {
    "a function of os": (
        lambda: _set(os, "listdir", _names),
        lambda: os.listdir.__name__ == "_names",
    ),
    "a function of a library, in part": (_partial, lambda: getattr(np.load, "keywords", None)),
    "what shows exceptions": (
        lambda: _set(sys, "excepthook", _hook),
        lambda: sys.excepthook.__qualname__,
    ),
    "an attribute of sys": (_attribute, lambda: getattr(sys, "of_this_test", None)),
    "a translation": (_gettext, lambda: hasattr(builtins, "_") and builtins._("word")),
    "a class of loggers": (_logger, _chat),
    "nodes of trees": (_nodes, lambda: _pytree.tree_leaves(Pair(1, 2)) == [1, 2]),
    "how tensors are printed": (_printing, lambda: str(torch.tensor(1.23456))),
    "torch without oneDNN": (
        lambda: _set(torch.backends.mkldnn, "enabled", False),
        lambda: torch.backends.mkldnn.enabled,
    ),
    "cudnn's benchmark": (
        lambda: _set(torch.backends.cudnn, "benchmark", True),
        lambda: torch.backends.cudnn.benchmark,
    ),
    "TF32": (
        lambda: _set(torch.backends.cuda.matmul, "allow_tf32", True),
        lambda: torch.backends.cuda.matmul.allow_tf32,
    ),
    "a dialect": (_dialect, lambda: "of this test" in csv.list_dialects()),
    "the first day of a week": (_weekday, calendar.firstweekday),
    "a signal that is ignored": (
        _ignored,
        lambda: signal.getsignal(signal.SIGUSR2) == signal.SIG_IGN,
    ),
    "how a class is pickled": (
        _reducer,
        lambda: getattr(copyreg.dispatch_table.get(Pair), "__name__", None),
    ),
    "a kind of sequence": (_sequence, lambda: isinstance(Pair(), collections.abc.Sequence)),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_worker_from_a_clean_process_sees_what_the_program_has_told_a_library(what: str) -> None:
    change, look = CHANGES[what]
    before = look()
    undo = change()
    try:
        here = look()
        assert here != before, "nothing was changed"
        assert ask(None, lambda nothing: look()) == here
    finally:
        undo()


LOOKS = """
def load_first(index):
    return index + 10

class Rows:
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return globals()["load_" + "first"](index)
"""


def test_code_of_no_module_that_looks_for_names_is_a_reason_to_fork(
    caplog: pytest.LogCaptureFixture,
) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(LOOKS, names)
    with another_thread():
        loader: DataLoader[Any] = DataLoader(names["Rows"](), None, num_workers=1)
        assert list(loader) == [10, 11]
    assert (
        "Rows.__getitem__ looks for names in a dict of globals that is no module's" in caplog.text
    )


def test_what_cannot_be_told_to_a_library_is_said(caplog: pytest.LogCaptureFixture) -> None:
    numbers = (number for number in range(3))
    undo = _set(np, "load", functools.partial(np.load, numbers))
    try:
        assert list(DataLoader([1, 2], None, num_workers=1, multiprocessing_context="spawn")) == [
            1,
            2,
        ]
    finally:
        undo()
    assert "cannot pickle 'generator' object. So handlers of logging" in caplog.text
