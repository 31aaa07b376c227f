"""Recipes: everything about one loader and its faults, drawn from a seed and a number."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from antifreeze import policies

from .contents import KINDS, Deed

LIMIT_S = 1.0  # `sample_timeout` where there is one; samples take milliseconds
GROUP_BYTES = 700 * 1024 * 1024
METHODS = (None, None, None, "fork", "spawn", "forkserver")
LETHAL = ("SIGKILL", "SIGSEGV", "SIGABRT", "_exit", "SystemExit")

# What is done from outside, to whom, and how often it is drawn. Stopped origins take their time
# (15 to 30 s until they are given up), so they are rare.
OUTSIDE = {
    ("worker", "kill"): 30,
    ("worker", "segv"): 6,
    ("worker", "pause"): 16,
    ("worker", "stop"): 8,
    ("workers", "kill"): 8,
    ("workers", "pause"): 4,
    ("zygote", "kill"): 14,
    ("zygote", "pause"): 6,
    ("clean process", "kill"): 10,
    ("clean process", "pause"): 3,
    ("zygote", "stop"): 1,
    ("clean process", "stop"): 1,
}


@dataclass(frozen=True)
class Strike:
    """One fault from outside: armed at a batch, done a moment later."""

    at_batch: int  # -1: before the loop begins
    after_s: float
    whom: str
    how: str
    which: int  # among those there are
    pause_s: float = 0.0

    @property
    def kind(self) -> str:
        return f"{self.whom}: {self.how}"


@dataclass(frozen=True)
class Recipe:
    """One loader, the loops over it, and what goes wrong."""

    seed: int
    number: int
    kind: str
    order: tuple[int, ...]
    batch_size: int
    workers: int
    prefetch: int | None
    persistent: bool
    in_order: bool
    method: str | None
    beside: bool  # another thread runs in the program
    epochs: int
    loops: int  # at once
    leave_at: int | None  # batches after which the first loop is dropped
    drop_loader: bool  # while its last loop runs
    keep: int  # batches, looked at again at the end
    nap_s: float
    loop_nap_s: float
    on_error: str  # raise, replace, skip, retry
    limit_s: float | None
    deeds: dict[int, Deed] = field(default_factory=dict)
    strikes: tuple[Strike, ...] = ()
    group_bytes: int | None = None  # memory for a program of its own

    @property
    def length(self) -> int:
        return len(self.order)

    @property
    def batches(self) -> list[tuple[int, ...]]:
        size = self.batch_size
        return [self.order[at : at + size] for at in range(0, self.length, size)]

    def arguments(self) -> dict[str, Any]:
        """Give what the loader is made with, beside dataset, collate function and generator."""
        on_error: Any = policies.raising(retries=1) if self.on_error == "retry" else self.on_error
        return {
            "batch_size": self.batch_size,
            "sampler": list(self.order),
            "num_workers": self.workers,
            "prefetch_factor": self.prefetch,
            "persistent_workers": self.persistent,
            "in_order": self.in_order,
            "multiprocessing_context": self.method,
            "sample_timeout": "auto" if self.limit_s is None else self.limit_s,
            "on_error": on_error,
        }

    def __str__(self) -> str:
        fields = {name: value for name, value in vars(self).items() if name != "order"}
        return f"Recipe({', '.join(f'{name}={value!r}' for name, value in fields.items())})"


def draw(seed: int, number: int) -> Recipe:
    """Draw the recipe of a number; the same for the same seed, whatever came before."""
    rng = random.Random(f"{seed}/{number}")
    kind = rng.choice(KINDS)
    length = rng.randint(40, 120) if kind == "slabs" else rng.randint(60, 400)
    order = list(range(length))
    rng.shuffle(order)
    loops = 2 if kind != "augmented" and rng.random() < 0.15 else 1
    epochs = rng.choice((1, 1, 2, 3))
    batch_size = rng.choice((1, 2, 4, 7, 16))
    batches = -(-length // batch_size)
    common: dict[str, Any] = {
        "seed": seed,
        "number": number,
        "kind": kind,
        "order": tuple(order),
        "batch_size": batch_size,
        "workers": rng.randint(1, 4),
        "prefetch": rng.choice((None, None, 1, 4)),
        "persistent": rng.random() < 0.5 and loops == 1,  # else both loops share one epoch
        "in_order": rng.random() < 0.75,
        "method": rng.choice(METHODS),
        "beside": rng.random() < 0.3,
        "epochs": epochs,
        "loops": loops,
        "leave_at": rng.randrange(batches) if epochs > 1 and rng.random() < 0.4 else None,
        "drop_loader": rng.random() < 0.2,
        "keep": rng.choice((0, 0, 3, 12)),
        "nap_s": rng.choice((0.0, 0.001, 0.003, 0.006)),
        "loop_nap_s": rng.choice((0.0, 0.0, 0.0, 0.01)),
        "on_error": rng.choice(("raise", "raise", "replace", "skip", "retry")),
        "limit_s": LIMIT_S if rng.random() < 0.4 else None,
    }
    if rng.random() < 0.02:
        return _starved(rng, common)
    plain = Recipe(**common)
    deeds = _deeds(rng, plain) if rng.random() < 0.5 else {}
    strikes: tuple[Strike, ...] = ()
    # A policy that lets samples go would let one go that was hit from inside and from outside.
    spares = plain.on_error in ("replace", "skip") and any(d.is_lethal for d in deeds.values())
    if not spares and (not deeds or rng.random() < 0.6):
        strikes = _strikes(rng, plain)
    return Recipe(**common, deeds=deeds, strikes=strikes)


def _starved(rng: random.Random, common: dict[str, Any]) -> Recipe:
    """Let a sample eat all memory, once, in a program of its own that has little."""
    common |= {"kind": "slabs", "limit_s": None, "loops": 1, "epochs": 1, "leave_at": None}
    eater = rng.choice(common["order"])
    deeds = {eater: Deed("eat", once=True)}
    return Recipe(**common, deeds=deeds, group_bytes=GROUP_BYTES)


def _deeds(rng: random.Random, recipe: Recipe) -> dict[int, Deed]:
    deeds: dict[int, Deed] = {}
    known = recipe.kind != "augmented"  # what another sample would have drawn is not known
    for _ in range(rng.randint(1, 4)):
        index = rng.choice(recipe.order)
        what = rng.choice(("raise", "raise", "die", "die", "hang", "deadlock"))
        if what == "hang" and recipe.limit_s is None:
            what = "die"
        if what == "deadlock" and (recipe.limit_s is not None or rng.random() < 0.7):
            what = "die"
        once = not known or rng.random() < 0.6 or what == "deadlock"
        if what == "raise" and recipe.on_error == "retry":
            once = True
        elif what == "raise" and once:
            if not known:
                continue
            once = False  # one that comes when it is asked again is for those who ask again
        how = rng.choice(LETHAL if what == "die" else ("sleep", "spin", "native"))
        deeds[index] = Deed(what, once, how)
    return _one_lethal_a_batch(recipe, deeds)


def _one_lethal_a_batch(recipe: Recipe, deeds: dict[int, Deed]) -> dict[int, Deed]:
    """Tries are counted for the batch: two samples that end a worker once each are one too many."""
    kept: dict[int, Deed] = {}
    for batch in recipe.batches:
        lethal = False
        for index in batch:
            deed = deeds.get(index)
            if deed is None or (deed.is_lethal and lethal):
                continue
            kept[index] = deed
            lethal = lethal or deed.is_lethal
    return kept


def _strikes(rng: random.Random, recipe: Recipe) -> tuple[Strike, ...]:
    count = rng.randint(1, 5)
    places = sorted(rng.randint(-1, len(recipe.batches) - 1) for _ in range(count * recipe.epochs))
    strikes = []
    for at_batch in places[: 2 * count]:
        whom, how = rng.choices(list(OUTSIDE), list(OUTSIDE.values()))[0]
        after_s = rng.choice((0.0, 0.0, rng.uniform(0, 0.03), rng.uniform(0, 0.3)))
        which, pause_s = rng.randrange(4), rng.uniform(0.05, 2.0)
        strikes.append(Strike(at_batch, after_s, whom, how, which, pause_s))
    return tuple(strikes)
