"""Bars on a terminal: all of a program share one place, one below the other.

`rich` can have one live display only. While there are bars, what the program prints or logs to the
same terminal goes above them. `rich` is imported when the first bar is drawn.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from typing import TYPE_CHECKING, Any, TextIO

from ..._core.limits import LIMITS
from ..._linux.clock import monotonic
from .numbers import Figures, duration, faults, rate, waited

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text

WIDEST_BAR, NARROWEST_BAR = 40, 8  # columns


def pause(usual_s: float, began_at: float) -> float:
    """Say how long not to draw again, after what it took this time."""
    return min(
        LIMITS.records.bar_longest_s,
        max(usual_s, LIMITS.records.bar_share * (monotonic() - began_at)),
    )


class Bar:
    """One of the bars on the terminal."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self.figures: Figures | None = None

    def begin(self, figures: Figures) -> float:
        self.figures = figures
        return stage.enter(self, self._file)

    def show(self, figures: Figures) -> float:
        self.figures = figures
        return stage.draw()

    def end(self, figures: Figures) -> None:
        self.figures = figures
        stage.leave(self)


class Stage:
    """All bars of this program, each a line, the outer ones above. The last to leave clears it."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._lock = threading.RLock()  # again: a collector may end a loop while another is drawn
        self._bars: list[Bar] = []
        self._live: Live | None = None
        self._file: TextIO | None = None
        self._streams: dict[str, tuple[Any, Any]] = {}  # that prints go above: as it was, and is

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
            return LIMITS.records.bar_s  # the first time takes long: it imports

    def _open(self, file: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        self._file, were = file, {name: getattr(sys, name) for name in ("stdout", "stderr")}
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
        for name, was in were.items():
            if (proxy := getattr(sys, name)) is not was:
                self._streams[name] = was, proxy
                _point_handlers(was, proxy)
        console.show_cursor(True)  # who is killed could not show it again

    def draw(self) -> float:
        with self._lock:
            if self._live is None:
                return LIMITS.records.bar_s
            began_at = monotonic()
            try:
                self._live.refresh()
            except (OSError, ValueError):  # the terminal is gone: no reason to end an epoch
                return float("inf")
            return pause(LIMITS.records.bar_s, began_at)

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
                pass  # the terminal is gone
            finally:
                if self._live is None:
                    self._give_back()

    def forget_parent(self) -> None:
        """In a forked child: its prints are its own, and wait for no lock of its parent's."""
        self._give_back()
        self._clear()

    def _give_back(self) -> None:
        """Have the program's streams as they were."""
        for name, (was, proxy) in self._streams.items():
            if getattr(sys, name) is proxy:
                setattr(sys, name, was)
            _point_handlers(proxy, was)
        self._streams = {}

    def _lines(self) -> Any:
        from rich.console import Group

        width = self._live.console.width if self._live is not None else 80
        return Group(*(self._text(bar, width, over=False) for bar in self._bars))

    def _text(self, bar: Bar, width: int, *, over: bool) -> Text:
        assert bar.figures is not None
        encoding = getattr(self._file, "encoding", None) or "ascii"
        return bar_line(bar.figures, width, over=over, plain=not encoding.lower().startswith("utf"))


stage = Stage()
os.register_at_fork(after_in_child=stage.forget_parent)


def _is_proxy(stream: Any) -> bool:
    """Say whether it is what a live display of rich has put in the place of a stream."""
    return hasattr(type(stream), "rich_proxied_file")


def _point_handlers(was: Any, to: Any) -> None:
    """Have handlers of `logging` that were made with one stream write to another."""
    for reference in list(logging._handlerList):  # type: ignore[attr-defined]
        handler = reference()
        if isinstance(handler, logging.StreamHandler) and handler.stream is was:
            handler.stream = to


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
        sign, rest = ("#", "-") if plain else ("━", "─")  # colours may be switched off
        text.append(sign * filled, style="green" if figures.done == figures.total else "cyan")
        text.append(rest * (room - filled) + " ", style="bright_black")
    text.append_text(tail)
    text.truncate(width - 1)
    return text
