"""Looking at objects of the program's asks none of them, whatever their classes make of it."""

from __future__ import annotations

import sys
import threading
from types import FunctionType, MethodType, ModuleType
from typing import Any

import pytest

from antifreeze._loading.raw_attributes import attribute, instance_dict, module_of
from antifreeze._processes.fork_safety import fork_hazards
from antifreeze._processes.fork_safety.open_blocks import is_held
from antifreeze._processes.fork_safety.reachable_objects import reached_from

from ..patience import PATIENCE_S
from .parked import wait_until_parked
from .shy import Enters, Makes, Shy, nobody_asked, refuse


class Slotted:
    __slots__ = ("here", "missing")

    def __init__(self) -> None:
        self.here = 1


class Owner:
    kept = 1
    given = property(lambda self: 1 / 0)

    def __init__(self) -> None:
        self.own = 2
        self.__dict__["given"] = 3

    @staticmethod
    def alone() -> None:
        pass

    @classmethod
    def of_class(cls) -> None:
        pass


def test_attributes_are_those_that_getattr_would_find() -> None:
    owner, slotted = Owner(), Slotted()
    assert (attribute(owner, "own"), attribute(owner, "kept")) == (2, 1)
    assert attribute(owner, "alone") is Owner.alone is attribute(Owner, "alone")
    assert attribute(owner, "of_class") is Owner.of_class.__func__
    assert attribute(owner, "given") is None  # only its code knows
    assert (attribute(slotted, "here"), attribute(slotted, "missing")) == (1, None)
    assert attribute(sys, "path") is sys.path
    assert attribute(None, "path") is None and instance_dict(slotted) == {}


def test_the_module_of_a_thing_is_a_word() -> None:
    def function() -> None:
        pass

    assert module_of(function) == module_of(Owner) == __name__
    assert module_of(Owner().__init__) == __name__
    function.__module__ = Owner()
    assert module_of(function) == "" == module_of(MethodType(Makes(), 1)) == module_of(1)


def hidden() -> Any:
    """Return a module that has no name, and code for what it has not."""
    module = ModuleType("hidden")
    vars(module).clear()
    vars(module)["__getattr__"] = refuse("an attribute of a module")
    return module


class OddCondition(threading.Condition):
    __getattribute__ = refuse("an attribute of a lock")


class Worker(threading.Thread):
    """A thread that makes its name up when it is asked."""

    name = property(refuse("name"), lambda self, name: None)
    is_alive = refuse("is_alive")
    __eq__ = refuse("eq")
    __hash__ = threading.Thread.__hash__


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_search_in_a_dataset_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    shy = object.__new__(Shy)
    module = hidden()
    monkeypatch.setitem(sys.modules, "hidden", module)

    class Dataset:
        MODULE, CLASS = module, Shy

        def __init__(self) -> None:
            self.things = [shy, Makes(), module, object.__new__(Enters), Shy, MethodType(shy, 1)]
            self.lock = threading.Lock()
            self.odd = function

        def __getitem__(self, index: int) -> Any:
            return hidden.shy, shy, Shy, module

    def function() -> Any:
        return shy, Shy

    function.__module__ = shy
    odd = FunctionType(function.__code__, {"shy": shy, "Shy": Shy}, closure=function.__closure__)
    odd.__module__ = shy
    dataset: Any = Dataset()
    dataset.more = odd
    with nobody_asked():
        reached = reached_from({"dataset": dataset, "collate_fn": shy, "worker_init_fn": odd})
        assert reached.held() == ""
    assert "dataset.lock" in [path for path, _ in reached.locks]


def test_a_lock_of_a_class_of_the_programs_is_not_asked() -> None:
    with nobody_asked():
        assert not is_held(object.__new__(OddCondition))
        assert not is_held(object.__new__(Shy))


def test_threads_of_classes_of_the_programs_are_not_asked() -> None:
    done = threading.Event()
    thread = Worker(target=done.wait)
    thread.start()
    try:
        wait_until_parked(thread)
        with nobody_asked():
            look = fork_hazards.program(reached_from({"dataset": [thread]}))
            assert fork_hazards.is_alone() is False
        assert [name.rpartition(" ")[2] for name in look.parked] == ["(Worker)"]
        assert "has a thread" in look.held
    finally:
        done.set()
        threading.Thread.join(thread, PATIENCE_S)
