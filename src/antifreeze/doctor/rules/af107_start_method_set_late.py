"""set_start_method where the start method is set already."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.definitions import PICKLING
from ..source.view import View
from ..source.wording import text_of
from .base import CRASH, LIKELY, POSSIBLE, Hit, Rule

_SET = "multiprocessing.set_start_method"
_STARTS = ("multiprocessing.Process", "multiprocessing.Pool", "multiprocessing.spawn")


def find(view: View) -> Iterator[Hit]:
    calls = view.calls(_SET)
    started = [each.place for each in view.loops if each.loader and each.loader.workers.any]
    for call in calls:
        arguments = view.call_arguments(call, ("method", "force"))
        forced = not (arguments["force"].absent or arguments["force"].is_(False))
        if forced or _is_looked_after(call, view):
            continue
        method = arguments["method"].value
        if any(_follows(call, each, view) for each in calls):
            words = "the start method is set a second time: `context has already been set`"
            yield Hit(call, words)
        elif _is_repeated(call, view):
            words = "this runs again in each round of a loop: `context has already been set`"
            yield Hit(call, words)
        elif any(_follows(call, each, view) for each in started):
            words = "workers were started before this line: `context has already been set`"
            yield Hit(call, words)
        elif method in PICKLING and view.runs_on_import(call) and not view.module.is_notebook:
            yield Hit(
                call,
                f"every worker that is started by {method} imports this file and comes to this line"
                " again, where the start method is set already",
                LIKELY if _starts_some(view) else POSSIBLE,
            )


def _is_repeated(call: ast.Call, view: View) -> bool:
    """Say whether a call is in a loop, or in a function of this file that is called in one."""
    function = view.function_around(call)
    conditional = any(isinstance(each, ast.If) for each in view.module.ancestors(call))
    if view.loop_around(call) is not None:
        return not conditional
    return (
        function is not None
        and view.module.scopes.parents.get(view.module.scopes.parents.get(call, call)) is function
        and any(view.loop_around(each) is not None for each in view.calls_of(function))
    )


def _is_looked_after(call: ast.Call, view: View) -> bool:
    """Say whether a failure is caught, or the method asked for first."""
    inner: ast.AST = call
    for each in view.module.ancestors(call):
        if isinstance(each, (ast.Try, ast.TryStar)) and inner in each.body and each.handlers:
            return True
        if isinstance(each, ast.If) and "start_method" in text_of(each.test):
            return True
        inner = each
    return False


def _follows(late: ast.AST, early: ast.AST, view: View) -> bool:
    """Say whether one runs after the other, certainly: in a later statement of the same block."""
    if late is early or view.function_around(late) is not view.function_around(early):
        return False
    above = {id(each) for each in (late, *view.module.ancestors(late))}
    inner = early
    for each in (early, *view.module.ancestors(early)):
        body = getattr(each, "body", None)
        if each is not early and id(each) in above and isinstance(body, list):
            places = [id(statement) for statement in body]
            mine = next((place for place, known in enumerate(places) if known in above), -1)
            return id(inner) in places and places.index(id(inner)) < mine
        if each is not early and isinstance(each, (ast.If, ast.Try, ast.TryStar)):
            return False
        inner = each
    return False


def _starts_some(view: View) -> bool:
    return any(each.workers.any and not each.ours for each in view.loaders) or bool(
        view.calls(*_STARTS)
    )


RULE = Rule(
    code="AF107",
    name="start-method-set-late",
    severity=CRASH,
    confidence=LIKELY,
    title="The start method is set when it is set already",
    what="""
    `set_start_method` without `force=True`: for spawn or forkserver and outside of `if __name__ ==
    "__main__":`, so that workers come to it again; a second time; or after a loop has started
    workers.
    """,
    why="""
    The start method can be set once. A worker that is started by spawn imports the script, with the
    method set already, and ends with `RuntimeError: context has already been set`; the loop then
    says `DataLoader worker (pid(s) ...) exited unexpectedly` (measured with torch 2.13). In the
    main process a second call, or one after workers were started, raises the same.
    """,
    instead="""
    Call it once, first thing under `if __name__ == "__main__":`. Or leave it, and give the loader
    `multiprocessing_context="spawn"`.
    """,
    not_flagged="""
    `force=True`; calls in a `try`, or under an `if` that asks `get_start_method()`. Files that
    start no processes themselves are shown with `--confidence possible`.
    """,
    bad="""
import torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, TensorDataset

mp.set_start_method("spawn")


def main():
    for batch in DataLoader(TensorDataset(torch.arange(10)), num_workers=2):
        print(batch)


if __name__ == "__main__":
    main()
""",
    good="""
import torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, TensorDataset


def main():
    for batch in DataLoader(TensorDataset(torch.arange(10)), num_workers=2):
        print(batch)


if __name__ == "__main__":
    mp.set_start_method("spawn")
    main()
""",
    also_bad=(
        """
import torch.multiprocessing as mp
from torch.utils.data import DataLoader


def fold(samples):
    mp.set_start_method("spawn")
    for batch in DataLoader(samples, batch_size=8, num_workers=2, persistent_workers=True):
        print(batch.shape)


def main(parts):
    for samples in parts:
        fold(samples)
""",
        """
import argparse
import multiprocessing

from torch.utils.data import DataLoader


def main(dataset):
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    loader = DataLoader(dataset, num_workers=args.workers)
    for batch in loader:
        print(batch)
    multiprocessing.set_start_method("spawn")
    for batch in loader:
        print(batch)
""",
        """
from torch import multiprocessing
from torch.utils.data import DataLoader


def load(cfg, dataset):
    multiprocessing.set_start_method("fork")
    if cfg.gpu:
        multiprocessing.set_start_method("spawn")
    return DataLoader(dataset, num_workers=cfg.workers)
""",
    ),
    also_good=(
        """
import torch.multiprocessing as mp
from torch.utils.data import DataLoader


def fold(samples):
    mp.set_start_method("spawn", force=True)
    for batch in DataLoader(samples, batch_size=8, num_workers=2, persistent_workers=True):
        print(batch.shape)


def main(parts):
    for samples in parts:
        fold(samples)
""",
        """
import torch.multiprocessing as mp
from torch.utils.data import DataLoader

try:
    mp.set_start_method("spawn")
except RuntimeError:
    pass


def load(dataset):
    return DataLoader(dataset, num_workers=4)
""",
        """
import sys

import torch.multiprocessing as mp
from torch.utils.data import DataLoader

mp.set_start_method("forkserver", force=True)


def load(dataset):
    return DataLoader(dataset, num_workers=4)


def start():
    if sys.platform == "darwin":
        mp.set_start_method("spawn")
    else:
        mp.set_start_method("fork")
""",
    ),
    find=find,
)
