"""One recipe, performed: a loader, its loops, the strikes; every batch is kept account of."""

from __future__ import annotations

import contextlib
import logging
import signal
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from antifreeze import DataLoader

from . import judge
from .contents import Troubled, as_they_are
from .faults import Campaign, Hit, Striker
from .recipes import Recipe

# For one batch. The longest that is right: a clean process that was stopped is given up after 30 s,
# then a zygote after 19 s, on a machine that does other things as well.
FROZEN_S = 120.0


class Frozen(BaseException):
    """A batch has not come. Not an Exception: nobody on the way may take it for an error."""


@dataclass
class Loop:
    """One loop over one epoch: what came, and when."""

    began: float
    came: list[judge.Print] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    kept: list[tuple[str, Any]] = field(default_factory=list)
    left_early: bool = False
    over: bool = False


@dataclass
class Outcome:
    """What became of a recipe."""

    number: int
    problems: list[str] = field(default_factory=list)
    epochs: int = 0
    samples: int = 0
    raised_after_two_hits: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    delays: list[tuple[str, float]] = field(default_factory=list)  # kind of fault, seconds
    said: list[str] = field(default_factory=list)  # by antifreeze
    seconds: float = 0.0


class Ear(logging.Handler):
    """Keeps what antifreeze says."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname} {record.getMessage()}")


@contextlib.contextmanager
def listening() -> Iterator[Ear]:
    logger, ear = logging.getLogger("antifreeze"), Ear()
    before = logger.level, logger.propagate
    logger.addHandler(ear)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield ear
    finally:
        logger.removeHandler(ear)
        logger.setLevel(before[0])
        logger.propagate = before[1]


@contextlib.contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """Raise Frozen in the main thread after so long."""

    def ring(number: int, frame: Any) -> None:
        raise Frozen

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def another_thread(wanted: bool) -> Iterator[None]:
    done, lock = threading.Event(), threading.Lock()

    def hold() -> None:
        with lock:  # a fork beside it is not safe
            done.wait()

    thread = threading.Thread(target=hold, name="somebody else")
    if wanted:
        thread.start()
    try:
        yield
    finally:
        done.set()
        if wanted:
            thread.join()


def perform(recipe: Recipe, striker: Striker) -> Outcome:
    """Do everything a recipe says, and judge it. Never raises for what the loader does."""
    outcome = Outcome(recipe.number)
    began = time.monotonic()
    belongings = judge.Belongings()
    with (
        tempfile.TemporaryDirectory(prefix="chaos-") as name,
        warnings.catch_warnings(),
        listening() as ear,
    ):
        warnings.simplefilter("ignore")  # two loops, many workers: as drawn
        references = _references(recipe)
        folder = Path(name)
        campaign = Campaign(recipe, striker, folder)
        try:
            with another_thread(recipe.beside):
                loops = _all_loops(recipe, campaign, folder)
        except Frozen:
            outcome.problems.append(f"no batch came for {FROZEN_S:g} s")
            loops = []
        except Exception as error:
            outcome.problems.append(f"raised outside of a batch: {type(error).__name__}: {error}")
            loops = []
        finally:
            campaign.finish()
        hits = campaign.outside + campaign.inside()
        outcome.faults.update(hit.kind for hit in hits)
        while loops:  # none is held any longer than that: memory that stays is a problem
            _judge(recipe, references.pop(0), loops.pop(0), hits, outcome)
        outcome.said = ear.lines
    outcome.problems += [f"left behind: {each}" for each in belongings.left()]
    outcome.seconds = time.monotonic() - began
    return outcome


def _loader(recipe: Recipe, folder: Path | None, **changes: Any) -> DataLoader[Any]:
    dataset = Troubled(recipe.kind, recipe.length, recipe.nap_s if folder else 0.0, folder)
    if folder is not None:
        dataset.deeds = recipe.deeds
    arguments = recipe.arguments() | changes
    if recipe.kind == "ragged":
        arguments["collate_fn"] = as_they_are
    generator = torch.Generator().manual_seed(recipe.seed * 1000 + recipe.number)
    return DataLoader(dataset, generator=generator, **arguments)


def _references(recipe: Recipe) -> list[list[judge.Print]]:
    """Say what each loop should get."""
    if recipe.kind != "augmented":
        return [judge.expected(recipe)] * (recipe.epochs * recipe.loops)
    changes: dict[str, Any] = {"multiprocessing_context": None, "on_error": "raise"}
    if not recipe.persistent:
        changes |= {"num_workers": 0, "prefetch_factor": None, "in_order": True}
    else:  # their later epochs draw otherwise than those of others: one worker, and no faults
        changes |= {"num_workers": 1, "in_order": True}
    loader = _loader(recipe, None, **changes)
    references: list[list[judge.Print]] = []
    for epoch in range(recipe.epochs):
        prints: list[judge.Print] = []
        for batch in loader:
            prints.append(judge.fingerprint(batch))
            if epoch == 0 and len(prints) - 1 == recipe.leave_at:
                break
        references.append(prints)
    if not recipe.in_order:  # what comes before it is left may be any part of it
        references[0] = [judge.fingerprint(each) for each in _loader(recipe, None, **changes)]
    return references


def _all_loops(recipe: Recipe, campaign: Campaign, folder: Path) -> list[Loop]:
    loader: DataLoader[Any] | None = _loader(recipe, folder)
    loops: list[Loop] = []
    for epoch in range(recipe.epochs):
        assert loader is not None
        campaign.before(epoch)
        present, iterators = [], []
        for _ in range(recipe.loops):
            present.append(Loop(time.monotonic()))
            with bounded(FROZEN_S):
                # In something that asks again: one that is merely kept is nobody's loop.
                iterators.append(map(_as_it_is, loader) if recipe.loops > 1 else iter(loader))
        leave_at = recipe.leave_at if epoch == 0 else None
        if recipe.drop_loader and epoch == recipe.epochs - 1:
            loader = None
        while not all(loop.over for loop in present):
            for loop, iterator in zip(present, iterators, strict=True):
                if not loop.over:
                    _step(recipe, loop, iterator, campaign)
                if leave_at is not None and len(loop.came) > leave_at:
                    loop.over = loop.left_early = True
        loops += present
        iterator = None
        del iterators
    return loops


def _as_it_is(batch: Any) -> Any:
    return batch


def _step(recipe: Recipe, loop: Loop, iterator: Any, campaign: Campaign) -> None:
    """Ask for one batch and keep account of it."""
    try:
        with bounded(FROZEN_S):
            batch = next(iterator)
    except StopIteration:
        loop.over = True
        return
    except Exception as error:
        loop.came.append(judge.Raised(type(error).__name__, str(error)))
        if len(loop.came) > 2 * len(recipe.batches):  # an error without an end
            loop.over = True
    else:
        print_ = judge.fingerprint(batch)
        loop.came.append(print_)
        if recipe.keep:
            loop.kept = [*loop.kept, (print_, batch)][-recipe.keep :]
    loop.times.append(time.monotonic())
    place = len(loop.came) - 1
    indices = recipe.batches[place] if place < len(recipe.batches) else ()
    campaign.delivered(place, indices)
    if recipe.loop_nap_s:
        time.sleep(recipe.loop_nap_s)


def _judge(
    recipe: Recipe, reference: list[judge.Print], loop: Loop, hits: list[Hit], outcome: Outcome
) -> None:
    outcome.epochs += 1
    places = {index: place for place, batch in enumerate(recipe.batches) for index in batch}
    counted: Counter[int] = Counter()
    for hit in hits:
        near = {places[index] for index, began in hit.samples if began >= loop.began}
        if not hit.samples and hit.kind.startswith("worker"):
            near = set(places.values())  # it had not begun one: nobody knows what it held
        counted.update(near)
    twice = {place for place, count in counted.items() if count > 1}
    due = reference
    if loop.left_early and recipe.in_order:
        due = judge.beginning(reference, len(loop.came))
    if loop.left_early and not recipe.in_order:
        wrong = [each for each in loop.came if isinstance(each, str) and each not in reference]
        outcome.problems += [f"wrong: {each}" for each in wrong]
    else:
        verdict = judge.compare(recipe, due, loop.came, twice)
        outcome.problems += verdict.problems
        outcome.samples += verdict.samples
        outcome.raised_after_two_hits += verdict.raised_after_two_hits
    for print_, batch in loop.kept:
        if judge.fingerprint(batch) != print_:
            outcome.problems.append("a batch changed after it was delivered")
    outcome.delays += _delays(reference, loop, hits, places)


def _delays(
    reference: list[judge.Print], loop: Loop, hits: list[Hit], places: dict[int, int]
) -> Iterator[tuple[str, float]]:
    """Say how long each hit kept the batches that it hit from being delivered."""
    delivered: dict[int, float] = {}
    for at, (print_, time_) in enumerate(zip(loop.came, loop.times, strict=True)):
        if isinstance(print_, str) and print_ in reference:
            delivered[reference.index(print_)] = time_
        elif print_ in reference[at : at + 1]:
            delivered[at] = time_
    for hit in hits:
        for index, began in hit.samples:
            came_at = delivered.get(places[index])
            if began >= loop.began and came_at is not None and came_at >= hit.at:
                yield hit.kind, came_at - hit.at
