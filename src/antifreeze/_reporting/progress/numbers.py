"""How one loop goes, in numbers and in words. Pure."""

from __future__ import annotations

from ..._core.frozen_values import frozen


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
