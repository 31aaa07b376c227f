"""Random packages, written to a folder, and datasets in them that look at what is around them.

A package has modules that import each other (early, late, in circles through the package), names
that are exported again or hide a module, attributes that are made when they are asked for, a
package inside, one without `__init__`, and settings that the program changes once all is imported
(of packages whose state is plain: docs/decisions/clean-process.md says what is not carried). Some
modules look for names that they make, have enum classes with state, functions of `singledispatch`,
tables keyed by objects of their own, or a class of their own. What a dataset sees of it is text:
two loaders that give the same text have seen the same.

python -m tests.rogues.random_packages FOLDER SEED COUNT: loads each with forked workers and with
those of a clean process, and prints what differs.
"""

from __future__ import annotations

import importlib
import random
import sys
from pathlib import Path

from .random_tables import table

MODULES = ("a", "b", "c", "d")


FUTURE = "from __future__ import annotations"
# What a module has, what its function sees of it, and what the program does with it.
SHAPES = {
    "enum": (
        "class E_{m}(enum.Enum):\n    A = 1, 'a'\n    SAME = 1, 'a'\n    B = 2, ['b']\n"
        "    def __init__(self, number, word):\n        self.number, self.seen = number, []\n",
        "[(n, e.name, e.number, e.seen, e.value) for n, e in E_{m}.__members__.items()]",
        "E_{m}.B.seen.append('set')",
    ),
    "hints": (
        "class H_{m}:\n    x: K_{m}\n    y: typing.Optional[H_{m}] = None",
        "typing.get_type_hints(H_{m})['x'].number",
        "K_{m}.number = 'set'",
    ),
    "hints by another": (
        "class G_{m}:\n    x: K_{m}\n"
        "class Hints_{m}:\n    how = staticmethod(typing.get_type_hints)",
        "Hints_{m}.how(G_{m})['x'] is K_{m}",
        "",
    ),
    "globals": ("", "globals()['f_' + '{m}'](1), globals()['T_' + '{m}']", "T_{m}['k'].append(4)"),
    "eval": ("", "eval('K_' + '{m}').number", "K_{m}.number = 'set again'"),
    "object": (
        "def find_{m}(name):\n    return getattr(globals().get(name), 'mark', None)",
        "find_{m}('BOX_{m}')",
        "BOX_{m}.mark = 'set'",
    ),
    "modules": ("", "sys.modules[__name__].S_{m}, vars(sys.modules[__name__])['T_' + '{m}']", ""),
    "class": (
        "class Kind_{m}(types.ModuleType):\n    @property\n    def shown(self):\n"
        "        return self.S_{m}\nsys.modules[__name__].__class__ = Kind_{m}",
        "sys.modules[__name__].shown",
        "S_{m} = 'shown'",
    ),
    "dispatch": (
        "@functools.singledispatch\ndef d_{m}(it):\n    return 'any'\n"
        "@d_{m}.register(int)\ndef _(it):\n    return 'int'",
        "d_{m}(1), d_{m}('x'), d_{m}(())",
        "d_{m}.register(str, lambda it: 'later')",
    ),
}


class Package:
    """One package: its files, what the program changes in it, and what its dataset looks at."""

    def __init__(self, name: str, dice: random.Random) -> None:
        self.name, self._dice = name, dice
        self.files: dict[str, str] = {}
        self.changes: list[str] = []
        self.looks: list[str] = []
        self._more = random.Random(f"more of {name}")  # the rest stays what it was
        self._tables = random.Random(f"tables of {name}")
        self._looking: list[str] = []  # modules with a function that looks around in its own
        self._modules = list(MODULES[: dice.randint(2, 4)])
        self._is_plain = self._maybe()  # its state is: no objects
        for place, module in enumerate(self._modules):
            self._write_module(module, self._modules[:place])
        self._write_others()
        self._write_outer()
        self._look_around()
        self._write_data()

    def _maybe(self, chance: float = 0.5) -> bool:
        return self._dice.random() < chance

    def _write_module(self, m: str, before: list[str]) -> None:
        lines = ["from . import Name"] if self._maybe() else []
        if before and self._maybe():
            other = self._dice.choice(before)
            lines.append(f"from .{other} import f_{other}, K_{other}")
        if self._maybe():  # in a circle
            lines.append(f"from . import {self._dice.choice(self._modules)} as other")
        lines += [f"S_{m} = {self._dice.randint(0, 99)}", f"T_{m} = {{'k': [1, 2]}}"]
        base = "Name" if "from . import Name" in lines else "object"
        lines += [f"class K_{m}({base}):", f"    number = {self._dice.randint(0, 99)}"]
        lines += ["    def told(self):", f"        return S_{m}, T_{m}, self.number"]
        lines += [f"def f_{m}(times=2):", f"    return [K_{m}().told(), S_{m}] * times"]
        lines += [f"def {m}():", f"    return 'function', f_{m}(1)"]
        if self._maybe(0.3):
            lines += ["def __getattr__(name):", "    if name.startswith('lazy'):"]
            lines += [f"        return name, S_{m}", "    raise AttributeError(name)"]
        if not self._is_plain and self._maybe():
            lines += [f"L_{m} = __import__('re').compile('x{m}')"]
        if not self._is_plain and self._maybe():
            lines += [f"D_{m} = K_{m}()"]
        if self._more.random() < 0.5:
            lines = self._write_look(m, lines)
        self.files[f"{m}.py"] = "\n".join(lines) + "\n"
        if self._is_plain and self._maybe():
            self.changes += [f"package.{m}_module.S_{m} = 'set by the program'"]
            self.changes += [f"package.{m}_module.T_{m}['k'].append(3)"]
        if self._is_plain and self._maybe(0.3):
            self.changes += [f"package.{m}_module.NEW_{m} = ('new', 1)"]

    def _write_look(self, m: str, lines: list[str]) -> list[str]:
        """Add what is seen by a function of the module alone, and what the program changes."""
        self._looking.append(m)
        shapes = self._more.sample(list(SHAPES), self._more.randint(1, len(SHAPES)))
        seen = []
        for shape in shapes:
            made, look, change = (text.replace("{m}", m) for text in SHAPES[shape])
            lines += made.splitlines()
            seen.append(look)
            if change and self._more.random() < 0.7 and not (self._is_plain and "BOX" in change):
                self.changes.append(f"package.{m}_module.{change}")
        if self._tables.random() < 0.6:
            text, look = table(m, self._tables)
            lines += text.splitlines()
            seen.append(look)
        if not self._is_plain:
            lines += [f"BOX_{m} = K_{m}()"]
        lines += [f"def look_{m}():", f"    return [{', '.join(seen)}]"]
        return [
            FUTURE,
            "import collections, dataclasses, enum, functools, sys, types, typing",
            *lines,
        ]

    def _write_others(self) -> None:
        if self._maybe():
            self.files["sub/__init__.py"] = "from .x import f_x\nfrom .. import Name as Outer\n"
            self.files["sub/x.py"] = (
                f"from ..{self._modules[0]} import S_{self._modules[0]} as S\n"
                "X = 5\ndef f_x():\n    from .. import VERSION\n    return S, X, VERSION\n"
            )
        if self._maybe(0.3):
            self.files["ns/n.py"] = (
                "from .. import Name\nN = 3\ndef f_n():\n    return N, Name.word\n"
            )

    def _write_outer(self) -> None:
        lines = ["class Name:", "    word = 'name'", "VERSION = 3", "__version__ = '1.2'"]
        for m in self._dice.sample(self._modules, len(self._modules)):
            match self._dice.randrange(4):
                case 0:
                    lines.append(f"from .{m} import f_{m}")
                case 1:
                    lines.append(f"from .{m} import *")
                case 2:
                    lines.append(f"from .{m} import {m}")  # hides the module
                case 3:
                    lines.append(f"from . import {m} as again_{m}")
        if self._maybe(0.4):
            lines += ["def __getattr__(name):", "    if name == 'lazy':", "        from . import a"]
            lines += [
                "        return 'lazy', VERSION, a is not None",
                "    raise AttributeError(name)",
            ]
        if "sub/x.py" in self.files and self._maybe():
            lines += ["from . import sub"]
        lines += ["AFTER = [VERSION]"]
        self.files["__init__.py"] = "\n".join(lines) + "\n"
        if self._is_plain and self._maybe():
            self.changes.append("package.VERSION = 4")

    def _look_around(self) -> None:
        p = self.name
        of_any = ["package.VERSION", "package.AFTER", "package.nothing", "package.lazy"]
        of_any += ["package.__version__", "package.Name.word", "names(package)"]
        of_any += [f"of('{p}').VERSION", f"of('{p}').Name().word", "package.__spec__.name"]
        of_any += [f"found('{p}.a')", f"found('{p}.zzz')", "package.__doc__", "package.__package__"]
        of_any += [f"(from_('{p}', 'VERSION'))", f"from_('{p}', 'nothing')"]
        for m in self._modules:
            of_any += [f"of('{p}.{m}').S_{m}", f"of('{p}.{m}').f_{m}()", f"of('{p}.{m}').lazy_1"]
            of_any += [f"of('{p}.{m}').K_{m}().told()", f"of('{p}.{m}').NEW_{m}"]
            of_any += [f"of('{p}.{m}').T_{m}", f"text(package.{m})", f"text(package.f_{m})"]
            of_any += [f"from_('{p}', 'f_{m}')(1)", f"names(of('{p}.{m}'))"]
            of_any += [f"isinstance(of('{p}.{m}').D_{m}, of('{p}.{m}').K_{m})"]
            of_any += [
                f"of('{p}.{m}').L_{m}.pattern",
                f"issubclass(of('{p}.{m}').K_{m}, package.Name)",
            ]
            of_any += [f"of('{p}.{m}').K_{m} is early(K, '{m}')"]
        if "sub/x.py" in self.files:
            of_any += [f"of('{p}.sub.x').f_x()", f"of('{p}.sub').Outer is package.Name"]
        if "ns/n.py" in self.files:
            of_any += [f"of('{p}.ns.n').f_n()"]
        self.looks = self._dice.sample(of_any, min(len(of_any), self._dice.randint(4, 16)))
        self.looks += [f"look_{m}()" for m in self._looking]

    def _write_data(self) -> None:
        p = self.name
        early = self._dice.sample(self._modules, self._dice.randint(0, len(self._modules)))
        lines = ["import importlib", "import importlib.util"]
        lines += [f"from .{m} import look_{m}" for m in self._looking]
        lines += [f"from .{m} import K_{m}" for m in early]
        lines += [f"K = {{{', '.join(f'{m!r}: K_{m}' for m in early)}}}"]
        late = [f"        from {p}.{m} import f_{m}" for m in self._modules if self._maybe()]
        called = [f"        seen.append(str({each.split()[-1]}(1)))" for each in late]
        if late and self._maybe():
            late.append(f"        import {p}.{self._modules[0]}")
            called.append(f"        seen.append(str({p}.VERSION))")
        lines += [
            "def of(name):",
            "    return importlib.import_module(name)",
            "def from_(name, attribute):",
            "    return getattr(__import__(name, fromlist=[attribute]), attribute)",
            "def found(name):",
            "    return importlib.util.find_spec(name) is not None",
            "def names(module):",
            "    return sorted(each for each in dir(module) if not each.startswith('_'))",
            "def text(thing):",
            "    return type(thing).__name__.replace('StandIn', 'module'), thing.__name__",
            "def early(K, m):",
            f"    return K.get(m, of('{p}.' + m).__dict__.get('K_' + m))",
            "class Data:",
            "    def __len__(self):",
            f"        return {len(self.looks) + 1}",
            "    def __getitem__(self, index):",
            f"        import {p} as package",
            "        try:",
            "            return self.look(index, package)",
            "        except Exception as error:",
            "            return f'{type(error).__name__}: {error}'",
            "    def look(self, index, package):",
            f"        if index < {len(self.looks)}:",
            *(
                f"            if index == {place}: return str({look})"
                for place, look in enumerate(self.looks)
            ),
            "        seen = []",
            *late,
            *called,
            "        return str(seen)",
        ]
        self.files["data.py"] = "\n".join(lines) + "\n"

    def write(self, folder: Path) -> None:
        for name, text in self.files.items():
            path = folder / self.name / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


def main(folder: str, first: int, count: int) -> None:
    from antifreeze import DataLoader

    sys.path.insert(0, folder)
    looked = 0
    for seed in range(first, first + count):
        written = Package(f"pack{seed}", random.Random(seed))
        written.write(Path(folder))
        try:
            data = importlib.import_module(f"{written.name}.data").Data()
        except ImportError:  # a circle that Python cannot import either
            continue
        looked += 1
        package = sys.modules[written.name]
        for m in MODULES:
            if (module := sys.modules.get(f"{written.name}.{m}")) is not None:
                exec(
                    "\n".join(c for c in written.changes if f".{m}_module." in c).replace(
                        f"package.{m}_module", "module"
                    ),
                    {"module": module},
                )
        exec("\n".join(c for c in written.changes if "_module" not in c), {"package": package})
        seen = [
            [text for (text,) in DataLoader(data, num_workers=1, multiprocessing_context=how)]
            for how in ("fork", "forkserver")
        ]
        for look, forked, clean in zip([*written.looks, "late imports"], *seen, strict=True):
            if forked != clean:
                print(f"{written.name}: {look}\n  forked: {forked}\n  clean:  {clean}")
    print("looked at", looked)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
