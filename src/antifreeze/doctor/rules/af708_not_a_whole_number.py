"""A number of workers that is not a whole number: a fraction, a text, None."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.arguments import Argument
from ..source.loaders import Loader
from ..source.values import UNKNOWN
from ..source.view import View
from ..source.wording import text_of
from .base import CERTAIN, CRASH, LIKELY, Fix, Hit, Replace, Rule

_TEXTS = ("os.getenv", "os.environ.get")


def find(view: View) -> Iterator[Hit]:
    for loader in view.loaders:
        if not view.takes_torchs_arguments(loader):
            continue
        for name in ("num_workers", "prefetch_factor"):
            argument = loader[name]
            if argument.node is None:
                continue
            if argument.value is not UNKNOWN:
                yield from _constant(argument, loader, view)
            else:
                yield from _computed(argument, argument.node, view)


def _constant(argument: Argument, loader: Loader, view: View) -> Iterator[Hit]:
    value, node = argument.value, argument.node
    assert node is not None
    if isinstance(value, int) or (value is None and argument.name == "prefetch_factor"):
        return
    if isinstance(value, float) and (value < 0 or (value == 0 and not loader.ours)):
        return  # AF704; and torch takes 0.0 for 0
    words = f"`{argument.name}` must be a whole number, not {value!r}"
    yield Hit(view.here(node, loader.node), words, fix=_fix(node, loader.node))


def _fix(node: ast.expr, call: ast.Call) -> Fix | None:
    """Write `4` for `4.0` and `"4"`, where they stand in the call itself."""
    if node not in (*call.args, *(each.value for each in call.keywords)):
        return None
    match node:
        case ast.Constant(value=float() as value) if value.is_integer():
            return Fix(f"pass {int(value)}", (Replace(node, str(int(value))),))
        case ast.Constant(value=str() as text) if text.isascii() and text.isdigit():
            return Fix(f"pass {int(text)}", (Replace(node, str(int(text))),))
        case _:
            return None


def _computed(argument: Argument, node: ast.expr, view: View) -> Iterator[Hit]:
    for value in view.values(node):
        match value:
            case ast.BinOp(op=ast.Div()):
                what = f"`{text_of(value)}` is a fraction, also where nothing is left over"
            case ast.Call() if view.resolve(value.func) in _TEXTS:
                what = f"`{text_of(value)}` is a text where the variable is set"
            case ast.Subscript() if view.resolve(value.value) == "os.environ":
                what = f"`{text_of(value)}` is a text"
            case _:
                continue
        words = f"`{argument.name}` must be a whole number, and {what}"
        yield Hit(view.here(value, node), words, LIKELY)


RULE = Rule(
    code="AF708",
    name="not-a-whole-number",
    severity=CRASH,
    confidence=CERTAIN,
    title="A number of workers that is not a whole number",
    what="""
    `num_workers` or `prefetch_factor` that is a fraction (`4.0`, `os.cpu_count() / 2`), a text
    (`"4"`, `os.environ["WORKERS"]`, `os.getenv("WORKERS", 4)`), or a `num_workers` that is None.
    """,
    why="""
    Measured with torch 2.13: a text or None is a `TypeError` where the loader is made (`'<' not
    supported between instances of 'str' and 'int'`), a fraction one where it is iterated
    (`'float' object cannot be interpreted as an integer`). Neither names the argument. With
    `os.getenv` it works until somebody sets the variable.
    """,
    instead="""
    Divide with `//`, and put `int(...)` around what comes from the environment. `--fix` writes
    `4` for `4.0` and `"4"`.
    """,
    not_flagged="""
    Values that only the running program knows, as those of a command line. `0.0`, which torch
    takes for 0. Loaders of a class of the project's own, which may make a number of it.
    """,
    bad="""
import os

from torch.utils.data import DataLoader


def load(dataset):
    return DataLoader(dataset, batch_size=4, num_workers=len(os.sched_getaffinity(0)) / 2)
""",
    good="""
import os

from torch.utils.data import DataLoader


def load(dataset):
    return DataLoader(dataset, batch_size=4, num_workers=len(os.sched_getaffinity(0)) // 2)
""",
    also_bad=(
        """
import os

from torch.utils.data import DataLoader

WORKERS = os.environ["WORKERS"]


def load(dataset):
    return DataLoader(dataset, batch_size=4, num_workers=WORKERS)
""",
        """
import os

from torch.utils.data import DataLoader


def load(dataset):
    workers = os.getenv("WORKERS", 4)
    return DataLoader(dataset, batch_size=4, num_workers=workers)
""",
        """
from torch.utils.data import DataLoader


def load(dataset):
    return DataLoader(dataset, batch_size=4, num_workers="4")
""",
        """
from torch.utils.data import DataLoader


def load(dataset):
    return DataLoader(dataset, batch_size=4, num_workers=None)
""",
        """
from antifreeze import DataLoader


def load(dataset):
    return DataLoader(dataset, batch_size=4, num_workers=2, prefetch_factor=2.0)
""",
    ),
    also_good=(
        """
import os

from torch.utils.data import DataLoader


def load(dataset):
    workers = int(os.environ.get("WORKERS", "4"))
    return DataLoader(dataset, batch_size=4, num_workers=workers, prefetch_factor=None)
""",
        """
from torch.utils.data import DataLoader


class Loader(DataLoader):
    def __init__(self, dataset, num_workers=None):
        super().__init__(dataset, batch_size=4, num_workers=int(num_workers or 4))


def load(dataset):
    return Loader(dataset, num_workers="4"), Loader(dataset, num_workers=None)
""",
        """
from torch.utils.data import DataLoader


def load(dataset):
    return DataLoader(dataset, batch_size=4, num_workers=0.0)
""",
    ),
    find=find,
)
