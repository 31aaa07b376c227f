"""Own modules whose names are looked up in unusual ways: workers see what forked ones see."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest

from ..forked_programs import run_script

# Prints what forked workers see, then those of a clean process: a thread that holds a lock is the
# reason for it, or "spawn".
PROGRAM = """
import logging, sys, threading
from antifreeze import DataLoader
import data
SCRIPT

if __name__ == "__main__":
    change()
    wanted = getattr(sys.modules["__main__"], "Data", None) or data.Data
    def rows(**more):
        try:
            loader = DataLoader(wanted(), None, num_workers=1, collate_fn=str, **more)
            return sorted(set(loader))
        except Exception as error:
            return [type(error).__name__, str(error)]
    print(rows(multiprocessing_context="fork"))
    print(rows(multiprocessing_context="spawn"))
    done, lock, up = threading.Event(), threading.Lock(), threading.Event()
    def hold():
        with lock:
            up.set()
            done.wait()
    threading.Thread(target=hold).start()
    up.wait()
    print(rows())
    done.set()
"""
DATA = """
class Data:
    def __len__(self):
        return 2
    def __getitem__(self, index):
        return look()
"""


def seen(folder: Path, files: dict[str, str], script: str = "") -> tuple[list[str], str]:
    """Return what workers see that are forked, spawned, and come from a clean process; and what
    the program says."""
    _write(folder, files)
    if "def change" not in script:
        script = textwrap.dedent(script) + "\ndef change():\n    pass\n"
    (folder / "train.py").write_text(PROGRAM.replace("SCRIPT", textwrap.dedent(script)))
    done = run_script(folder / "train.py", cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr


def _write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text) + (DATA if name == "data.py" else ""))


DEEP = """
    DEEP = []
    for _ in range(3000):
        DEEP = [DEEP]
"""


def test_a_deeply_nested_list_that_no_worker_uses_is_left_out(tmp_path: Path) -> None:
    files = {"data.py": "import deep\ndef look():\n    return 5\n", "deep.py": DEEP}
    rows, said = seen(tmp_path, files)
    assert rows == ["['5']"] * 3 and said == ""


def test_a_deeply_nested_list_that_workers_use_is_a_reason_to_fork(tmp_path: Path) -> None:
    files = {"data.py": textwrap.dedent(DEEP) + "def look():\n    return len(DEEP)\n"}
    rows, said = seen(tmp_path, files)
    assert rows == ["['1']"] * 3
    assert "workers are forked from this process although" in said


LOOKS: dict[str, dict[str, str]] = {
    "globals": {
        "data.py": """
            class Box: value = 0
            box = Box()
            def load_a(): return box.value
            def load_b(): return globals()["bo" + "x"].value
            def look(kind="a"): return globals()["load_" + kind](), load_b()
            def change(): box.value = 7
        """
    },
    "vars": {
        "data.py": """
            import sys
            class NetA: value = 5
            def look(): return vars(sys.modules[__name__])["Net" + "A"].value
            def change(): NetA.value = 6
        """
    },
    "eval": {
        "data.py": """
            class NetA: value = [5]
            def look(kind="A"): return eval("Net" + kind).value
            def change(): NetA.value.append(6)
        """
    },
    "members": {
        "data.py": """
            import inspect, sys
            class NetA: value = 5
            class NetB: value = 6
            def look():
                found = inspect.getmembers(sys.modules[__name__], inspect.isclass)
                return [each.value for name, each in found if name.startswith("Net")]
            def change(): NetB.value = 8
        """
    },
    "a module of that name": {
        "data.py": "import sys, other\ndef look(): return sys.modules['other'].told()\n"
        "def change(): other.BOX.value = 3\n",
        "other.py": "class Box: value = 1\nBOX = Box()\ndef told(): return BOX.value\n",
    },
    "a module of any name": {
        "data.py": "import sys, other\ndef look(): return sys.modules['oth' + 'er'].BOX.value\n"
        "def change(): other.BOX.value = 3\n",
        "other.py": "class Box: value = 1\nBOX = Box()\ndef told(): return BOX.value\n",
    },
    "getattr of what is imported": {
        "data.py": """
            def look(name="BOX"):
                import other
                return getattr(other, name).value
            def change():
                import other
                other.BOX.value = 3
        """,
        "other.py": "class Box: value = 1\nBOX = Box()\n",
    },
    "type hints": {
        "data.py": """
            from __future__ import annotations
            import dataclasses, typing
            import hints
            class Inner: value = 3
            @dataclasses.dataclass
            class C:
                x: Inner
                y: int = 2
            def look(): return typing.get_type_hints(C)["x"].value, hints.told(C), hints.own()
            def change(): Inner.value = 4
        """,
        "hints.py": """
            from __future__ import annotations
            import typing
            def told(kind): return sorted(map(str, typing.get_type_hints(kind)))
            class Other: value = 8
            class D:
                x: Other
            def own(): return typing.get_type_hints(D)["x"].value
        """,
    },
    "type hints that a library asks for": {
        "data.py": """
            from __future__ import annotations
            import dataclasses, operator, typing
            class Inner: value = 3
            @dataclasses.dataclass
            class C:
                x: list[Inner] | None = None
            ASK = operator.methodcaller("__call__", C)
            HOW = {"hints": typing.get_type_hints}
            def look(): return typing.get_args(ASK(HOW["hints"])["x"])[0].__args__[0].value
            def change(): Inner.value = 4
        """
    },
    "state that the module's code would set again": {
        "data.py": """
            from __future__ import annotations
            import typing
            class A: value = 0
            a = A()
            a.value = 5
            TABLE = {}
            TABLE["k"] = 1
            class C:
                x: A
            HOW = {"hints": typing.get_type_hints}
            def look(): return HOW["hints"](C)["x"] is A, a.value, TABLE
            def change():
                a.value = 6
                TABLE["k"] = 2
        """
    },
    "a class of its own": {
        "data.py": "def look():\n    import kind\n    return kind.value, kind.__version__\n"
        "def change():\n    import kind\n    kind._value = 4\n",
        "kind.py": """
            import sys, types
            __version__ = "3"
            class Kind(types.ModuleType):
                @property
                def value(self): return self._value * 2
            _value = 3
            sys.modules[__name__].__class__ = Kind
        """,
    },
    "a lazy package": {
        "data.py": "from lazy import first\ndef look(): return first(2)\ndef change(): pass\n",
        "lazy/__init__.py": """
            import importlib, sys, types
            class Lazy(types.ModuleType):
                def __init__(self, name, names, old):
                    super().__init__(name)
                    self.names, self.__path__, self.__file__ = names, old.__path__, old.__file__
                    self.__spec__, self.__package__ = old.__spec__, name
                def __getattr__(self, name):
                    if name not in self.names:
                        raise AttributeError(name)
                    module = importlib.import_module("." + self.names[name], self.__name__)
                    setattr(self, name, getattr(module, name))
                    return getattr(module, name)
                def __dir__(self): return sorted(self.names)
            names = {"first": "a", "second": "b"}
            sys.modules[__name__] = Lazy(__name__, names, sys.modules[__name__])
        """,
        "lazy/a.py": "def first(number):\n    from . import second\n    import lazy\n"
        "    return second(number) + lazy.second(1), dir(lazy)\n",
        "lazy/b.py": "def second(number): return number * 3\n",
    },
    "no module at all": {
        "data.py": "def look():\n    import config\n    from config import rate\n"
        "    return config.rate, rate, config.twice()\n"
        "def change():\n    import config\n    config.rate = 4\n",
        "config.py": """
            import sys
            class Config:
                rate = 1
                def twice(self): return 2 * self.rate
            sys.modules[__name__] = Config()
        """,
    },
    "names that it tells itself": {
        "data.py": "def look():\n    import config\n    return dir(config), [getattr(config, each)"
        " for each in dir(config)]\ndef change():\n    import config\n    config.RATE = 4\n",
        "config.py": "def __dir__(): return ['RATE']\nRATE = 3\nOLD = 4\n",
    },
}


# The same as PROGRAM for the modules of each folder in turn, as if there were no others.
ALL_LOOKS = """
import importlib, json, os, sys, threading
from antifreeze import DataLoader

def rows(**more):
    try:
        wanted = importlib.import_module("data").Data
        loader = DataLoader(wanted(), None, num_workers=1, collate_fn=str, **more)
        return sorted(set(loader))
    except Exception as error:
        return [type(error).__name__, str(error)]

def rows_beside_a_thread():
    done, lock, up = threading.Event(), threading.Lock(), threading.Event()
    def hold():
        with lock:
            up.set()
            done.wait()
    thread = threading.Thread(target=hold)
    thread.start()
    up.wait()
    try:
        return rows()
    finally:
        done.set()
        thread.join()

if __name__ == "__main__":
    before = {*sys.modules}
    for folder in FOLDERS:
        sys.path.insert(0, folder)
        importlib.import_module("data").change()
        seen = [rows(multiprocessing_context=how) for how in ("fork", "spawn")]
        print(json.dumps([*map(str, seen), str(rows_beside_a_thread())]), flush=True)
        print("next", file=sys.stderr, flush=True)
        sys.path.remove(folder)
        own = {name.partition(".")[0] for name in os.listdir(folder)}
        for name in {*sys.modules} - before:
            if name.partition(".")[0] in own:
                del sys.modules[name]
"""


@pytest.fixture(scope="module")
def looked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[list[str], str]]:
    """Return what workers see of all modules that are looked at, and what the program says."""
    folder = tmp_path_factory.mktemp("looks")
    places = {what: folder / f"{number}" for number, what in enumerate(LOOKS)}
    for what, place in places.items():
        _write(place, LOOKS[what])
    script = folder / "train.py"
    script.write_text(ALL_LOOKS.replace("FOLDERS", repr([*map(str, places.values())])))
    done = run_script(script, cwd=folder)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    said = done.stderr.split("next\n")
    return {what: (rows[at], said[at]) for at, what in enumerate(LOOKS)}


@pytest.mark.parametrize("what", LOOKS)
def test_names_are_found_that_are_made_while_code_runs(
    what: str, looked: dict[str, tuple[list[str], str]]
) -> None:
    (forked, spawned, clean), said = looked[what]
    assert "Error" not in forked and [spawned, clean] == [forked] * 2
    assert said == ""


def test_objects_of_the_script_are_found_by_name(tmp_path: Path) -> None:
    script = """
        class T: value = 5
        t = T()
        class Data:
            def __len__(self): return 2
            def __getitem__(self, index): return getattr(sys.modules[__name__], "t").value
        def change(): t.value = 6
    """
    rows, said = seen(tmp_path, {"data.py": ""}, script)
    assert rows == ["['6']"] * 3 and said == ""


def test_what_cannot_be_sent_of_a_module_is_a_reason_to_fork(tmp_path: Path) -> None:
    files = {
        "data.py": """
            numbers = (each for each in range(9))
            def load_a(): return 5
            def look(kind="a"): return globals()["load_" + kind]()
        """
    }
    rows, said = seen(tmp_path, files)
    assert rows == ["['5']"] * 3
    assert "data.numbers is a generator" in said


def test_what_cannot_be_sent_of_the_script_is_a_reason_to_fork(tmp_path: Path) -> None:
    script = """
        numbers = (each for each in range(9))
        class Data:
            def __len__(self): return 2
            def __getitem__(self, index): return type(globals()["numbers"]).__name__
        def change(): pass
    """
    rows, said = seen(tmp_path, {"data.py": ""}, script)
    assert rows[0] == rows[2] == "['generator']"
    assert "__main__.numbers is a generator" in said
