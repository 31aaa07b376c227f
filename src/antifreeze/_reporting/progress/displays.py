"""Where it is shown: few lines in a log, one output of a notebook, and on terminals `bars`."""

from __future__ import annotations

import html
import sys
from contextlib import suppress
from typing import Any, Protocol, TextIO

from ..._core.limits import LIMITS
from ..._linux.clock import monotonic
from ..ranks import ranks
from .bars import Bar, pause, stage
from .numbers import Figures, faults, line

FIRST_LINE_S, LINE_S = 10.0, 60.0  # in a log: soon a sign of life, then few lines


class Display(Protocol):
    """`begin` and `show` give the seconds until they would like to show the next figures."""

    def begin(self, figures: Figures) -> float: ...
    def show(self, figures: Figures) -> float: ...
    def end(self, figures: Figures) -> None: ...


def display_for(file: TextIO | None) -> Display:
    """Choose by where it is shown. Of several ranks the first one shows."""
    to = sys.stderr if file is None else file
    if to is None or ranks().rank > 0:
        return Nothing()
    if file is None and _in_notebook():
        return Cell()
    if stage.takes(to):
        return Bar(to)
    return Lines(to)


class Nothing:
    """For those who have nothing to show."""

    def begin(self, figures: Figures) -> float:
        return float("inf")

    show = begin

    def end(self, figures: Figures) -> None:
        pass


class Lines:
    """Few lines, for who reads them later."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def begin(self, figures: Figures) -> float:
        return FIRST_LINE_S

    def show(self, figures: Figures) -> float:
        self._say(line(figures, over=False))
        return LINE_S

    def end(self, figures: Figures) -> None:
        self._say(line(figures, over=True))

    def _say(self, text: str) -> None:
        # A pipe that nobody reads, a file that was closed: no reason to end an epoch.
        with suppress(OSError, ValueError):
            print(text, file=self._file, flush=True)


def _in_notebook() -> bool:
    if "IPython" not in sys.modules:
        return False
    from rich.console import Console

    return Console().is_jupyter


class Cell:
    """One output of a notebook's cell, changed in place; needs no widgets, and is saved."""

    def __init__(self) -> None:
        self._handle: Any = None

    def begin(self, figures: Figures) -> float:
        from IPython.display import display  # type: ignore[import-not-found]

        self._handle = display(Shown(figures, over=False), display_id=True)
        return LIMITS.records.cell_s

    def show(self, figures: Figures) -> float:
        began_at = monotonic()
        self._handle.update(Shown(figures, over=False))
        return pause(LIMITS.records.cell_s, began_at)

    def end(self, figures: Figures) -> None:
        self._handle.update(Shown(figures, over=True))


class Shown:
    """Figures, as notebooks take them."""

    def __init__(self, figures: Figures, *, over: bool) -> None:
        self._figures, self._over = figures, over

    def __repr__(self) -> str:
        return line(self._figures, over=self._over)

    def _repr_html_(self) -> str:
        figures = self._figures
        bar = ""
        if figures.total:
            bar = f'<progress value="{figures.done}" max="{figures.total}"></progress> '
        said, red = html.escape(repr(self)), html.escape(faults(figures))
        if red:
            said = said.removesuffix(red) + f'<b style="color:#c00">{red}</b>'
        return f'<div style="font-family:monospace">{bar}{said}</div>'
