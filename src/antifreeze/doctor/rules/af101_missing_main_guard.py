"""Workers that import the script start it again."""

from __future__ import annotations

from collections.abc import Iterator

from ..source.definitions import PICKLING
from ..source.view import View
from .rule import CERTAIN, CRASH, LIKELY, POSSIBLE, Hit, Rule


def find(view: View) -> Iterator[Hit]:
    if view.module.is_notebook:
        return  # there is no script that a worker could import
    loops = {loop.loader: loop for loop in view.loops if loop.loader is not None}
    for loader in view.loaders:
        if loader.ours or not loader.workers.any or loader not in loops:
            continue
        loop = loops[loader]
        if not view.runs_on_import(loop.place) or loader.start_method == "fork":
            continue
        if loader.start_method in PICKLING:
            how = f"workers are started by {loader.start_method}, import this file and"
            confidence = CERTAIN if loader.workers.value == "some" else LIKELY
        else:
            how = "workers that are not forked (macOS, Windows, Python 3.14) import this file and"
            confidence = POSSIBLE
        yield Hit(
            loop.place,
            f'{how} come to this loop again: it is not under `if __name__ == "__main__":`',
            confidence,
        )


RULE = Rule(
    code="AF101",
    name="missing-main-guard",
    severity=CRASH,
    confidence=LIKELY,
    find=find,
)
