"""Threads of a worker that ask for names which were not sent: all get what one thread would."""

from __future__ import annotations

import importlib
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from antifreeze._core.limits import LIMITS
from antifreeze._processes.replication import stand_in_modules
from antifreeze._processes.replication.stand_in_lock import StandInLock
from antifreeze._processes.replication.user_code import UserCode

from ..forked_programs import run_script
from ..patience import PATIENCE_S

THREADS = 6


class Points(ModuleType):
    """What the code of modules tells and waits for; open while the program imports them."""

    def __init__(self) -> None:
        super().__init__("points")
        self.all: dict[str, threading.Event] = {}
        self.is_open = True

    def of(self, name: str) -> threading.Event:
        return self.all.setdefault(name, threading.Event())

    def tell(self, name: str) -> None:
        self.of(name).set()

    def wait(self, name: str) -> None:
        assert self.is_open or self.of(name).wait(PATIENCE_S)

    def close(self) -> None:
        """Begin anew, in earnest."""
        self.all.clear()
        self.is_open = False


class Program:
    """Modules of a program, imported as it does, and then replaced by their stand-ins."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.points = Points()

    def write(self, **files: str) -> None:
        """Write modules, by their names; with a dot for each folder."""
        for name, text in files.items():
            path = self.folder / (name.replace(".", "/") + ".py")
            path.parent.mkdir(exist_ok=True)
            path.write_text("import points, threading, time\n" + text)
        importlib.invalidate_caches()

    def begin(self, *names: str, gone: tuple[str, ...] = ()) -> None:
        """Import these modules, and have stand-ins in their place; of which nothing was sent.
        `gone`: those that are to be imported anew."""
        own = UserCode({})
        for name in names:
            importlib.import_module(name)
        arounds = [own.around(name) for name in names if name not in gone]
        self.forget()
        for around in arounds:
            stand_in_modules.stand_in(around)
        self.points.close()

    def forget(self) -> None:
        tops = {each.stem for each in self.folder.iterdir()}
        for name in list(sys.modules):
            if name.partition(".")[0] in tops:
                del sys.modules[name]
        stand_in_modules._told.clear()
        stand_in_modules._begun.clear()


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Program]:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    it = Program(tmp_path)
    monkeypatch.setitem(sys.modules, "points", it.points)
    yield it
    assert repr(stand_in_modules._lock) == "<StandInLock free, 0 wait>"
    it.forget()


def together(*asks: Callable[[], Any]) -> list[Any]:
    """Do this at once, each in a thread of its own."""
    barrier = threading.Barrier(len(asks))

    def ask(it: Callable[[], Any]) -> Any:
        barrier.wait(PATIENCE_S)
        return it()

    with ThreadPoolExecutor(len(asks)) as pool:
        futures = [pool.submit(ask, each) for each in asks]
        return [each.result(PATIENCE_S) for each in futures]


def of(module: str, name: str) -> Callable[[], Any]:
    return lambda: getattr(importlib.import_module(module), name)


def test_all_threads_get_a_name_that_was_not_sent(program: Program) -> None:
    program.write(slow="time.sleep(0.3)\ndef f():\n    return TABLE\nTABLE = object()\n")
    program.begin("slow")
    first, *others = together(*[of("slow", "TABLE")] * THREADS)
    assert all(each is first for each in others)
    assert sys.modules["slow"].f() is first


def test_nobody_sees_half_of_what_a_module_makes(program: Program) -> None:
    program.write(
        slow="TABLE = []\nfor each in range(20):\n    TABLE += [each]; time.sleep(0.01)\n"
    )
    program.begin("slow")
    module = sys.modules["slow"]

    def later() -> int:
        time.sleep(0.1)
        return len(module.TABLE)

    assert together(lambda: len(module.TABLE), later, later) == [20] * 3
    assert type(module) is stand_in_modules.StandIn


CIRCLE = """
time.sleep({pause})
class K_{me}:
    pass
SEEN_{me} = []
from . import {other}
def f_{me}():
    return K_{me}.__name__, {other}.K_{other}.__name__, {third}()
{pause} and time.sleep({pause})
T_{me} = object()
def {third}():
    from . import T_{other} as other
    return other is {other}.T_{other}
"""


@pytest.mark.parametrize("seed", range(12))
def test_threads_that_begin_at_different_places_of_a_circle_see_what_one_would(
    seed: int, program: Program
) -> None:
    dice = random.Random(seed)
    names = ["a", "b", "c", "d"]
    texts = {
        f"pack.{me}": CIRCLE.format(
            me=me, other=dice.choice(names), third=f"g_{me}", pause=dice.choice((0, 0, 0.01))
        )
        for me in names
    }
    outer = [f"from .{me} import T_{me}" for me in dice.sample(names, 4)]
    texts["pack.__init__"] = "\n".join(outer) + "\nEND = object()\n"
    program.write(**texts)
    program.begin("pack", *(f"pack.{me}" for me in names))
    asks = [of("pack", f"T_{me}") for me in names]
    asks += [of(f"pack.{me}", f"T_{me}") for me in names]
    asks += [of(f"pack.{me}", f"f_{me}") for me in names] + [of("pack", "END")]
    dice.shuffle(asks)
    together(*asks)
    for me in names:
        module = sys.modules[f"pack.{me}"]
        assert getattr(module, f"f_{me}")()[2]
        assert sys.modules["pack"].__dict__[f"T_{me}"] is module.__dict__[f"T_{me}"]


def test_modules_that_import_each_other_are_run_whichever_thread_asks_for_which(
    program: Program,
) -> None:
    """Beginning with `beta` fails: `alpha` needs what is not there yet."""
    files = {
        "pack.__init__": "",
        "pack.alpha": "time.sleep(0.02)\nEARLY = object()\nfrom .beta import LATE\nX = object()\n",
        "pack.beta": "time.sleep(0.02)\nfrom .alpha import EARLY\nLATE = object()\n",
    }
    program.write(**files)
    for _ in range(5):
        program.points.is_open = True
        program.begin("pack", "pack.alpha", "pack.beta")
        alpha, beta = of("pack.alpha", "X"), of("pack.beta", "LATE")
        x, late, x_again, late_again = together(alpha, beta, alpha, beta)
        assert x is x_again is not None and late is late_again
        assert sys.modules["pack.alpha"].LATE is late
        assert sys.modules["pack.beta"].EARLY is sys.modules["pack.alpha"].EARLY


def quickly(program: Program, *asks: Callable[[], Any]) -> list[Any]:
    began = time.monotonic()
    got = together(*asks)
    assert time.monotonic() - began < LIMITS.sending.turn_s
    return got


def test_a_thread_that_is_waited_for_in_an_import_goes_first(program: Program) -> None:
    """One thread runs `one` and waits for the import of `late`, which needs `other`."""
    program.write(
        one="points.tell('one runs')\nEARLY = object()\nimport late\nVALUE = late.VALUE\n",
        late="points.tell('late runs')\npoints.wait('one runs')\ntime.sleep(0.1)\n"
        "import one, other\nVALUE = other.VALUE, one.EARLY\n",
        other="time.sleep(0.05)\nVALUE = object()\n",
    )
    program.begin("one", "other", "late", gone=("late",))

    def first() -> Any:
        program.points.wait("late runs")
        return sys.modules["one"].VALUE

    value, late = quickly(program, first, lambda: importlib.import_module("late").VALUE)
    assert value is late
    assert late == (sys.modules["other"].VALUE, sys.modules["one"].EARLY)


def test_a_module_that_another_thread_imports_while_its_package_runs_is_imported_once(
    program: Program,
) -> None:
    files = {
        "pack.__init__": "points.tell('runs')\nNAME = object()\npoints.wait('imports')\n"
        "time.sleep(0.2)\nfrom . import late\nVALUE = late.VALUE\n",
        "pack.late": "from . import NAME\nVALUE = NAME, object()\n",
    }
    program.write(**files)
    program.begin("pack", "pack.late", gone=("pack.late",))

    def second() -> Any:
        program.points.wait("runs")
        program.points.tell("imports")
        return importlib.import_module("pack.late").VALUE

    value, late = quickly(program, of("pack", "VALUE"), second)
    assert value is late and late[0] is sys.modules["pack"].NAME


def test_a_thread_that_is_waited_for_in_another_way_goes_beside(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = StandInLock(replace(LIMITS.sending, turn_s=0.2))
    monkeypatch.setattr(stand_in_modules, "_lock", lock)
    program.write(
        one="import other\ngot = []\n"
        "thread = threading.Thread(target=lambda: got.append(other.VALUE))\n"
        "thread.start()\nthread.join()\nVALUE = got[0]\n",
        other="VALUE = object()\n",
    )
    program.begin("one", "other")
    value, again = together(of("one", "VALUE"), of("one", "VALUE"))
    assert value is again is sys.modules["other"].VALUE


def test_an_error_of_a_module_is_every_threads_own_and_the_next_try_is_anew(
    program: Program,
) -> None:
    program.write(bad="time.sleep(0.05)\npoints.is_open or 1 / 0\nVALUE = object()\n")
    program.begin("bad")

    def ask() -> str:
        with pytest.raises(ZeroDivisionError):
            sys.modules["bad"].VALUE  # noqa: B018
        return "raised"

    assert together(*[ask] * 3) == ["raised"] * 3
    program.points.is_open = True
    assert len(set(map(id, together(*[of("bad", "VALUE")] * 3)))) == 1


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_of_a_fork_runs_what_another_thread_was_running(program: Program) -> None:
    program.write(
        slow="points.tell('runs')\nEARLY = object()\npoints.wait('forked')\nVALUE = object()\n"
    )
    program.begin("slow")
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(of("slow", "VALUE"))
        program.points.wait("runs")
        if (pid := os.fork()) == 0:
            program.points.is_open = True
            try:
                module = sys.modules["slow"]
                is_well = module.VALUE is not None and type(module) is stand_in_modules.StandIn
                is_well = is_well and repr(stand_in_modules._lock) == "<StandInLock free, 0 wait>"
            except BaseException:
                is_well = False
            os._exit(0 if is_well else 1)
        program.points.tell("forked")
        assert asked.result(PATIENCE_S) is sys.modules["slow"].VALUE
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_importlib_tells_who_waits_for_whom() -> None:
    """Else a thread would wait for as long as others take to go beside."""
    assert hasattr(sys.modules["_frozen_importlib"], "_blocking_on")


FILES = {
    "__init__.py": "",
    "transforms.py": (
        "import time\ntime.sleep(0.3)\ndef used(x):\n    return x\ndef flip(x):\n    return -x\n"
    ),
    "data.py": (
        "import importlib\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "from mypkg.transforms import used\n"
        "def make(name):\n"
        "    return getattr(importlib.import_module('mypkg.transforms'), name)\n"
        "class Data:\n"
        "    def __len__(self):\n        return 4\n"
        "    def one(self, k):\n        return make('flip')(used(k))\n"
        "    def __getitem__(self, i):\n"
        "        with ThreadPoolExecutor(4) as pool:\n"
        "            return sum(pool.map(self.one, range(4)))\n"
    ),
}
SCRIPT = """
from antifreeze import DataLoader
from mypkg.data import Data

if __name__ == "__main__":
    loader = DataLoader(Data(), 2, num_workers=1, multiprocessing_context="spawn")
    print([batch.tolist() for batch in loader])
"""


def test_a_dataset_that_loads_in_threads_and_finds_its_functions_by_name(tmp_path: Path) -> None:
    (tmp_path / "mypkg").mkdir()
    for name, text in FILES.items():
        (tmp_path / "mypkg" / name).write_text(text)
    (tmp_path / "train.py").write_text(SCRIPT)
    done = run_script(tmp_path / "train.py")
    assert done.stderr == "" and done.stdout == "[[-6, -6], [-6, -6]]\n"
