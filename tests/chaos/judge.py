"""The judge: what an epoch should be, what it was, and what stays behind.

1. What should come is worked out without workers: by torch's own collate over pure samples, or,
   where samples draw, by a run without workers and faults and with the same seed.
2. What came is compared by fingerprints: bit by bit, in order if that was asked for.
3. A batch that was hit twice may be raised (two tries are what is promised); that is counted.
"""

from __future__ import annotations

import gc
import hashlib
import multiprocessing
import os
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from torch.utils.data import default_collate

from antifreeze._processes.starting import clean_process

from .contents import as_they_are, sample
from .recipes import Recipe

SETTLE_S = 10.0
ENDED = ("WorkerCrashed", "WorkerHung")


@dataclass(frozen=True)
class Raised:
    """An error in the place of a batch."""

    kind: str
    words: str = ""  # part of what it says

    def fits(self, other: Raised) -> bool:
        """Say whether an error that came is the one that was expected."""
        return self.kind == other.kind and self.words in other.words


Print = str | Raised


def fingerprint(thing: Any) -> str:
    digest = hashlib.blake2b(digest_size=16)
    _feed(digest, thing)
    return digest.hexdigest()


def _feed(digest: Any, thing: Any) -> None:
    if isinstance(thing, torch.Tensor):
        digest.update(f"tensor {thing.dtype} {tuple(thing.shape)}".encode())
        digest.update(np.ascontiguousarray(thing.numpy()).data)
    elif isinstance(thing, dict):
        digest.update(f"dict {len(thing)}".encode())
        for key, value in thing.items():
            _feed(digest, key)
            _feed(digest, value)
    elif isinstance(thing, list | tuple):
        digest.update(f"{type(thing).__name__} {len(thing)}".encode())
        for each in thing:
            _feed(digest, each)
    else:
        digest.update(f"{type(thing).__name__} {thing!r}".encode())


# In place of a batch of which the policy leaves nothing: the loop never hears of it.
LEFT_OUT = "left out"


def expected(recipe: Recipe) -> list[Print]:
    """Say what an epoch of pure samples is, deeds and policy included."""
    return [_batch(recipe, batch) for batch in recipe.batches]


def _batch(recipe: Recipe, batch: Sequence[int]) -> Print:
    collate = as_they_are if recipe.kind == "ragged" else default_collate
    rows: list[Any] = []
    for index in batch:
        loaded = _loaded_instead(recipe, index)
        if isinstance(loaded, Raised):
            return loaded
        if loaded is not None:
            rows.append(sample(recipe.kind, loaded))
    if not rows:
        return LEFT_OUT
    return fingerprint(collate(rows))


def _loaded_instead(recipe: Recipe, index: int) -> int | Raised | None:
    """Say which index is loaded for one, by the policy; None: it is left out."""
    deed = recipe.deeds.get(index)
    if deed is None or deed.once:
        return index
    match recipe.on_error:
        case "skip":
            return None
        case "replace":
            return _loaded_instead(recipe, (index + 1) % recipe.length)
    if deed.what == "raise":
        return Raised("ValueError", f"sample {index} is bad")
    return Raised("WorkerHung" if deed.what == "hang" else "WorkerCrashed", f"sample {index} ")


def beginning(due: Sequence[Print], count: int) -> Sequence[Print]:
    """Give the part of an epoch of which so many batches come."""
    places = [place for place, each in enumerate(due) if each != LEFT_OUT]
    return due[: places[count]] if count < len(places) else due


@dataclass
class Verdict:
    """What was wrong with one loop, and how much was right."""

    problems: list[str] = field(default_factory=list)
    samples: int = 0
    raised_after_two_hits: int = 0


def compare(
    recipe: Recipe, due: Sequence[Print], came: Sequence[Print], twice: set[int]
) -> Verdict:
    """Compare a whole epoch. `twice`: the positions that were hit more than once."""
    verdict = Verdict()
    if recipe.in_order:
        _compare_in_order(recipe, due, came, twice, verdict)
    else:
        _compare_without_order(recipe, due, came, twice, verdict)
    return verdict


def _compare_in_order(
    recipe: Recipe, due: Sequence[Print], came: Sequence[Print], twice: set[int], verdict: Verdict
) -> None:
    known = {each: place for place, each in enumerate(due) if isinstance(each, str)}
    places = [place for place, each in enumerate(due) if each != LEFT_OUT]
    if len(places) != len(came):
        verdict.problems.append(f"{len(came)} batches came, {len(places)} were due")
    for place, was in zip(places, came, strict=False):
        should = due[place]
        if _same(should, was):
            verdict.samples += len(recipe.batches[place])
        elif place in twice and _is_let_go(recipe, was):
            verdict.raised_after_two_hits += 1
        else:
            instead = f" (that is batch {known[was]})" if was in known else ""
            verdict.problems.append(f"batch {place} should be {should}, was {was}{instead}")


def _compare_without_order(
    recipe: Recipe, due: Sequence[Print], came: Sequence[Print], twice: set[int], verdict: Verdict
) -> None:
    left = list(came)
    missing = []
    for place, should in enumerate(due):
        if should == LEFT_OUT:
            continue
        match = next((each for each in left if _same(should, each)), None)
        if match is None:
            missing.append(place)
        else:
            left.remove(match)
            verdict.samples += len(recipe.batches[place])
    for place in list(missing):
        match = next((each for each in left if _is_let_go(recipe, each)), None)
        if place in twice and match is not None:
            missing.remove(place)
            left.remove(match)
            verdict.raised_after_two_hits += 1
    if missing:
        verdict.problems.append(f"lost: batches {missing}")
    known = Counter(each for each in due if isinstance(each, str))
    for each in left:
        verdict.problems.append(f"{'came twice' if each in known else 'wrong'}: {each}")


def _same(should: Print, was: Print) -> bool:
    if isinstance(should, Raised):
        return isinstance(was, Raised) and should.fits(was)
    return should == was


def _is_let_go(recipe: Recipe, was: Print) -> bool:
    """Say whether this is what becomes of a batch whose tries are used up."""
    if isinstance(was, Raised):
        return was.kind in ENDED
    return recipe.on_error in ("replace", "skip")


class Belongings:
    """What a program has: processes, threads, descriptors, memory of ours."""

    def __init__(self) -> None:
        self._me = psutil.Process()
        self._children = {child.pid for child in self._me.children(recursive=True)}
        self._threads = set(threading.enumerate())
        self._descriptors = descriptors()

    def left(self) -> list[str]:
        """Say what is there that was not; waits a while for it to go."""
        give_up = time.monotonic() + SETTLE_S
        while (left := self._left()) and time.monotonic() < give_up:
            time.sleep(0.02)
        return left

    def _left(self) -> list[str]:
        gc.collect()
        multiprocessing.active_children()
        left = []
        for child in self._me.children(recursive=True):
            if child.pid not in self._children and not _is_service(child):
                left.append(f"process {child}")
        for thread in threading.enumerate():
            if thread not in self._threads:
                left.append(f"thread {thread}")
        stays = _of_clean_process()
        for number, what in descriptors().items():
            if self._descriptors.get(number) != what and number not in stays:
                left.append(f"descriptor {number}: {what}")
        mapped = Path("/proc/self/maps").read_text().count("memfd:antifreeze")
        if mapped:
            left.append(f"memory: {mapped} mappings")
        return left


def descriptors() -> dict[int, str]:
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # the one that listed the folder
    return found


def _of_clean_process() -> set[int]:
    """Give the descriptors of the clean process: it stays for the program."""
    if clean_process._present is None:
        return set()
    present = clean_process._present[1]
    return {present._pidfd.number, present._sock.fileno()}


def _is_service(child: psutil.Process) -> bool:
    if clean_process._present is not None and child.pid == clean_process._present[1].pid:
        return True
    try:
        if child.status() == psutil.STATUS_ZOMBIE:
            return False
        command = " ".join(child.cmdline())
    except psutil.Error:
        return True
    return "resource_tracker" in command
