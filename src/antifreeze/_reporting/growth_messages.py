"""A worker that has grown, in words: one line."""

from __future__ import annotations

from .._core.health.memory_growth import Growth
from .._core.limits import Limits
from .._linux.available_memory import in_words
from .._loading.observations import Suspect
from .ranks import who as speaks

NAMED = 3


def line(growth: Growth, found: tuple[Suspect, ...], label: str, limits: Limits) -> str:
    """Say who has grown, by how much, what it is, and what is done about it."""
    who = f"worker {growth.seat} ({label})"
    how = (
        f"has grown by {in_words(growth.grown)} in {growth.parcels:,} batches, to"
        f" {in_words(growth.now)}"
    )
    return f"{speaks()}: {who} {how}: {_what(found)}. {_why(growth, limits)} {_then(growth)}"


def _what(found: tuple[Suspect, ...]) -> str:
    if not found:
        return (
            "nothing in the dataset, its class or its module has, as far as can be seen; perhaps a"
            " library keeps something"
        )
    return ", ".join(_suspect(each) for each in found[:NAMED])


def _suspect(each: Suspect) -> str:
    size = f"about +{in_words(each.bytes)} in " if each.bytes else "+"
    return f"{each.path} ({size}{each.items:,} items)"


def _why(growth: Growth, limits: Limits) -> str:
    if growth.room is not None:
        return f"Only {in_words(growth.room.left)} are {growth.room.words}."
    assert limits.life_bytes is not None
    return f"It may hold {in_words(limits.life_bytes)} (worker_memory)."


def _then(growth: Growth) -> str:
    if growth.goes:
        return (
            "It is replaced by a new one when it has brought what it holds; no sample is lost. For"
            " good, keep less in the dataset: every worker has a copy of its own."
        )
    return "It is left to work: a stream belongs to its worker. Keep less in the dataset."
