"""The bars: what is asked of antifreeze, what was measured, met or missed."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from contenders import BY_KEY, CONTENDERS, Contender
from moments import MOMENTS
from programs import MEASURES, Measure, ProgramFigures, ratios
from rates import ratio
from real_program import PROGRAMS, Program
from results import Results
from workloads import WORKLOADS

OURS, BASE = "antifreeze", "torch"
# Samples a second, divided by those of torch with persistent workers.
ASKED = {
    "float-images": 4.0,
    "uint8-images": 4.0,
    "tokens": 8.0,
    "rows": 4.0,
    "integers": 20.0,
    "ragged": 2.5,
    "python": 0.97,
    "features": 20.0,
}
# Where samples are costly no transport can win much: a share of what the processes can do at all.
ASKED_OF_BOUND = {"jpeg": 0.88}
# Two equal loaders differ by this much between runs on a machine that others use too.
NOISE = 0.97
LATER_BY, LATER_BY_S = 1.05, 0.002
# In programs with much beside the loader, whose moments vary more: whichever is later.
PROGRAM_LATER_BY, PROGRAM_LATER_BY_S = 1.10, 0.020
MORE_MEMORY = 1.10


@dataclass(frozen=True, slots=True)
class Bar:
    """One thing asked. `met` is None where it was not measured."""

    what: str
    asked: str
    measured: str
    met: bool | None
    part: str = ""  # of the run, where it has a table of its own


def judge(results: Results) -> list[Bar]:
    """Judge every bar that this run has something to say about."""
    bars = [
        Bar(f"{each.name} takes part", "installed", f"missing: pip install {each.package}", False)
        for each in results.missing
    ]
    return [*bars, *_rates(results), *_peers(results), *_moments(results), *_programs(results)]


def _rates(results: Results) -> Iterator[Bar]:
    for workload in WORKLOADS:
        if workload.name not in results.rates:
            continue
        ours = results.figures(workload.name, OURS)
        if workload.name in ASKED:
            asked, other, unit = ASKED[workload.name], BASE, "x torch"
        else:
            asked, other, unit = ASKED_OF_BOUND[workload.name], "bound", "of the bound"
        found = ratio(ours, results.figures(workload.name, other))
        yield Bar(
            f"{workload.name}: {workload.what}",
            f">= {asked:g} {unit}",
            f"{found:.2f}" if found else "-",
            found >= asked if found else None,
        )


def _peers(results: Results) -> Iterator[Bar]:
    for peer in CONTENDERS:
        if peer.kind not in ("process", "thread"):
            continue
        rows = {
            workload.name: (workload, found)
            for workload in WORKLOADS
            if (found := _against(results, workload.name, peer))
        }
        if not rows:
            continue
        lost = [each for each in rows.values() if each[1] < NOISE]
        excused = peer.kind == "thread"
        worst = min(rows.values(), key=lambda each: each[1])
        yield Bar(
            f"ahead of {peer.name}",
            "all rows but the cheapest samples" if excused else f"every row (noise: {NOISE})",
            f"worst {worst[1]:.2f}x ({worst[0].name}); behind on {len(lost)} of {len(rows)}",
            all(excused and workload.cheapest for workload, _ in lost),
        )


def _against(results: Results, workload: str, peer: Contender) -> float | None:
    return ratio(results.figures(workload, OURS), results.figures(workload, peer.key))


def _moments(results: Results) -> Iterator[Bar]:
    for moment in MOMENTS:
        if moment.key not in results.moments:
            continue
        ours = results.median_s(moment.key, moment.ours)
        theirs = results.median_s(moment.key, moment.theirs)
        if moment.within_s is not None:
            asked = f"< {moment.within_s * 1e3:.0f} ms"
            met = ours < moment.within_s if ours is not None else None
        else:
            asked = f"not later than {BY_KEY[moment.theirs].name}"
            known = ours is not None and theirs is not None
            met = ours <= theirs * LATER_BY + LATER_BY_S if known else None
        said = "-" if ours is None else f"{ours * 1e3:.0f} ms"
        said += "" if theirs is None else f" (torch {theirs * 1e3:.0f} ms)"
        yield Bar(moment.what, asked, said, met)


def _programs(results: Results) -> Iterator[Bar]:
    for program in PROGRAMS:
        ours, theirs = results.program(program.key, OURS), results.program(program.key, BASE)
        if ours is None or theirs is None:
            continue
        for measure in MEASURES:
            yield _of_program(program, measure, ours, theirs)
        plain = results.program(PROGRAMS[0].key, OURS)
        if plain is not None and program is not PROGRAMS[0]:
            for measure in MEASURES:
                if measure.kind == "rate":
                    yield _as_plain(program, measure, ours, plain)


def _of_program(
    program: Program, measure: Measure, ours: ProgramFigures, theirs: ProgramFigures
) -> Bar:
    """Compare a program's two loaders. Torch replaces no worker: it has a new loader there."""
    mine, other = ours.median(measure.key), theirs.median(measure.key)
    what = f"{program.key}: {measure.what}"
    if mine is None or other is None:
        return Bar(what, "as torch's", "-", None, "programs")
    if measure.kind == "moment":
        asked = "torch's + 10 % or 20 ms"
        found = f"{mine * 1e3:.0f} ms (torch {other * 1e3:.0f} ms)"
        met = mine <= max(other * PROGRAM_LATER_BY, other + PROGRAM_LATER_BY_S)
    elif measure.kind == "rate":
        middle = statistics.median(ratios(ours, theirs, measure.key))
        asked, found, met = ">= torch's", f"{middle:.2f} x torch", middle >= 1
    else:
        asked, met = "torch's + 10 %", mine <= other * MORE_MEMORY
        found = f"{mine / 2**20:.0f} MiB (torch {other / 2**20:.0f} MiB)"
    return Bar(what, asked, found, met, "programs")


def _as_plain(
    program: Program, measure: Measure, ours: ProgramFigures, plain: ProgramFigures
) -> Bar:
    """Compare ours with ours in the plain program. It is slower where that is more than noise:
    by its median and in three rounds of four."""
    divided = sorted(ratios(ours, plain, measure.key))
    what, asked = f"{program.key}: {measure.what}, to the plain program", "the same, but for noise"
    if len(divided) < 2:
        return Bar(what, asked, "-", None, "programs")
    low, middle, high = statistics.quantiles(divided, n=4, method="inclusive")
    found = f"{middle:.2f} x plain (half of the rounds: {low:.2f}-{high:.2f})"
    return Bar(what, asked, found, middle >= NOISE or high >= 1, "programs")
