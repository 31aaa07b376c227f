"""How `loader.progress()` looks: a bar on a terminal, a cell of a notebook, lines in a log.

`rich` is imported where a bar is drawn. On a terminal all bars of a program share one place, one
below the other: `rich` can have one live display only, and prints of the loop go above it.
"""

from __future__ import annotations

import html
import os
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from ._clock import monotonic
from ._core.messages import frozen
from ._ranks import ranks

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text

FIRST_LINE_S, LINE_S = 10.0, 60.0  # in a log: soon a sign of life, then few lines
BAR_S, CELL_S = 0.1, 0.25  # between two looks: as often as people can read it
SHARE = 50  # drawing takes one part of so many of the time at the most ...
SELDOM_S = 2.0  # ... but however slow a terminal is, people look
WIDEST_BAR, NARROWEST_BAR = 40, 8  # columns


@frozen
class Figures:
    """How one loop goes: all that displays see."""

    title: str
    done: int  # batches
    total: int | None  # None: nobody knows
    elapsed_s: float
    left_s: float | None
    samples: int | None  # None: batches are what is counted
    wait_share: float | None
    faults: int


def of_total(figures: Figures) -> str:
    total = f" of {figures.total:,}" if figures.total is not None else ""
    return f"{figures.done:,}{total} batch" + "es" * ((figures.total or figures.done) != 1)


def rate(figures: Figures) -> str:
    if not figures.done:
        return ""
    count, unit = figures.done, "batches"
    if figures.samples is not None:
        count, unit = figures.samples, "samples"
    each = count / figures.elapsed_s if figures.elapsed_s else 0.0
    return f"{each:,.0f} {unit}/s" if each >= 100 else f"{each:.3g} {unit}/s"


def waited(figures: Figures) -> str:
    share = figures.wait_share
    if share is None or not figures.done:
        return ""
    return "waited under 1 %" if 0 < share < 0.01 else f"waited {100 * share:.0f} %"


def faults(figures: Figures) -> str:
    return f"{figures.faults:,} fault" + "s" * (figures.faults != 1) if figures.faults else ""


def duration(seconds: float) -> str:
    minutes, s = divmod(int(seconds), 60)
    hours, m = divmod(minutes, 60)
    return f"{hours}:{m:02}:{s:02}" if hours else f"{m}:{s:02}"


def line(figures: Figures, *, over: bool) -> str:
    """Say it in one line, for a log."""
    begin = of_total(figures)
    if over and figures.done == figures.total:
        begin = begin.partition(" of ")[2]
    if over or figures.total is None:
        begin += f" in {duration(figures.elapsed_s)}"
    elif figures.total:
        begin += f" ({100 * figures.done // figures.total} %)"
    left = ""
    if not over and figures.left_s is not None:
        left = f"{duration(figures.left_s)} left"
    parts = [begin, rate(figures), waited(figures), left, faults(figures)]
    said = ", ".join(part for part in parts if part)
    return f"{figures.title}: {said}" if figures.title else said


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
    if _stage.takes(to):
        return Bar(to)
    return Lines(to)


def _pause(usual_s: float, began_at: float) -> float:
    """Say how long not to draw again, after what it took this time."""
    return min(SELDOM_S, max(usual_s, SHARE * (monotonic() - began_at)))


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


# ---- terminals -----------------------------------------------------------------------------------


class Bar:
    """One of the bars on the terminal."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self.figures: Figures | None = None

    def begin(self, figures: Figures) -> float:
        self.figures = figures
        return _stage.enter(self, self._file)

    def show(self, figures: Figures) -> float:
        self.figures = figures
        return _stage.draw()

    def end(self, figures: Figures) -> None:
        self.figures = figures
        _stage.leave(self)


class Stage:
    """All bars of this program, each a line, the outer ones above. The last to leave clears it."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._lock = threading.RLock()  # again: a collector may end a loop while another is drawn
        self._bars: list[Bar] = []
        self._live: Live | None = None
        self._file: TextIO | None = None
        self._streams: tuple[Any, Any] = (None, None)  # as they were before

    def takes(self, file: TextIO) -> bool:
        """Say whether a bar can be shown there."""
        if _is_proxy(file):  # a live display of rich has it. If that is not ours: lines
            return self._live is not None and file.rich_proxied_file is self._file  # type: ignore[attr-defined]
        if self._live is not None:
            return file is self._file
        try:
            return file.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")
        except (AttributeError, ValueError):
            return False

    def enter(self, bar: Bar, file: TextIO) -> float:
        with self._lock:
            self._bars.append(bar)
            if self._live is None:
                self._open(file)
            self.draw()
            return BAR_S  # the first time takes long: it imports

    def _open(self, file: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        self._file, self._streams = file, (sys.stdout, sys.stderr)
        console = Console(
            file=file,
            force_terminal=True,
            force_interactive=True,
            force_jupyter=False,
            markup=False,
            highlight=False,
            emoji=False,
        )
        self._live = Live(
            console=console,
            auto_refresh=False,  # it would be a thread
            transient=True,
            get_renderable=self._lines,
            redirect_stdout=_same_terminal(sys.stdout, file),
            redirect_stderr=_same_terminal(sys.stderr, file),
        )
        self._live.start()
        console.show_cursor(True)  # who is killed could not show it again

    def draw(self) -> float:
        with self._lock:
            if self._live is None:
                return BAR_S
            began_at = monotonic()
            try:
                self._live.refresh()
            except (OSError, ValueError):  # the terminal is gone: no reason to end an epoch
                return float("inf")
            return _pause(BAR_S, began_at)

    def leave(self, bar: Bar) -> None:
        with self._lock:
            if self._live is None or bar not in self._bars:
                return
            self._bars.remove(bar)
            live = self._live
            last = self._text(bar, live.console.width, over=True)
            try:
                if self._bars:
                    live.refresh()  # without it
                    live.console.print(last)
                    return
                self._live = None
                live.stop()
                live.console.print(last)
            except (OSError, ValueError):
                sys.stdout, sys.stderr = self._streams

    def forget_parent(self) -> None:
        """In a forked child: its prints are its own, and wait for no lock of its parent's."""
        if self._live is not None:
            for name, was in zip(("stdout", "stderr"), self._streams, strict=True):
                if _is_proxy(getattr(sys, name)):
                    setattr(sys, name, was)
        self._clear()

    def _lines(self) -> Any:
        from rich.console import Group

        width = self._live.console.width if self._live is not None else 80
        return Group(*(self._text(bar, width, over=False) for bar in self._bars))

    def _text(self, bar: Bar, width: int, *, over: bool) -> Text:
        assert bar.figures is not None
        encoding = getattr(self._file, "encoding", None) or "ascii"
        return bar_line(bar.figures, width, over=over, plain=not encoding.lower().startswith("utf"))


_stage = Stage()
os.register_at_fork(after_in_child=_stage.forget_parent)


def _is_proxy(stream: Any) -> bool:
    """Say whether it is what a live display of rich has put in the place of a stream."""
    return hasattr(type(stream), "rich_proxied_file")


def _same_terminal(stream: Any, file: TextIO) -> bool:
    """Say whether what is written to a stream would meet the bars; else it is left alone: the
    results of a program may go to a file while people look at its bars."""
    try:
        return os.path.sameopenfile(stream.fileno(), file.fileno())
    except (AttributeError, OSError, ValueError):
        return False


def bar_line(figures: Figures, width: int, *, over: bool, plain: bool = False) -> Text:
    """Give one line that fits: first the bar gets shorter, then it goes, then the end is cut."""
    from rich.text import Text

    text = Text(no_wrap=True, overflow="crop")
    if figures.title:
        text.append(figures.title + " ", style="bold")
    tail = Text()
    total = f"/{figures.total:,}" if figures.total is not None else " batches"
    tail.append(f"{figures.done:,}{total}", style="green")
    if said := rate(figures):
        tail.append(f"  {said}")
    if said := waited(figures):
        tail.append(f"  {said}", style="yellow" if (figures.wait_share or 0) >= 0.2 else "")
    tail.append(f"  {duration(figures.elapsed_s)}", style="dim")
    if not over and figures.left_s is not None:
        tail.append(f" + {duration(figures.left_s)} left", style="dim")
    if said := faults(figures):
        tail.append(f"  {said}", style="bold red")
    room = min(WIDEST_BAR, width - text.cell_len - tail.cell_len - 2)
    if figures.total and room >= NARROWEST_BAR:
        filled = room * figures.done // figures.total
        sign, rest = ("#", "-") if plain else ("━", "━")
        text.append(sign * filled, style="green" if figures.done == figures.total else "cyan")
        text.append(rest * (room - filled) + " ", style="bright_black")
    text.append_text(tail)
    text.truncate(width - 1)
    return text


# ---- notebooks -----------------------------------------------------------------------------------


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
        return CELL_S

    def show(self, figures: Figures) -> float:
        began_at = monotonic()
        self._handle.update(Shown(figures, over=False))
        return _pause(CELL_S, began_at)

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
