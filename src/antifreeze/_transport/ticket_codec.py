"""Tickets on their way to a worker. What cannot be read there is still known by its number."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

from .._core.frozen_values import message
from .._core.tickets import Errand


@message
class Task:
    """A ticket as the worker sees it."""

    number: int
    position: int
    slot: int  # of its lease
    generation: int
    renewed: bool  # the slab of this slot must not be used again
    pickled: bytes  # the indices
    spared: tuple[int, ...] = ()  # places of samples that count as failed

    def indices(self) -> Any:
        """Give the indices; raises what their unpickling raises."""
        return pickle.loads(self.pickled)


def encode_tickets(errands: Sequence[Errand]) -> bytes:
    """Raises what pickling the indices raises."""
    return pickle.dumps(
        [
            (
                errand.ticket.number,
                errand.ticket.position,
                errand.lease.slot,
                errand.lease.generation,
                errand.lease.renewed,
                pickle.dumps(errand.ticket.indices, protocol=5),
                errand.ticket.spared,
            )
            for errand in errands
        ],
        protocol=5,
    )


def decode_tickets(body: memoryview) -> list[Task]:
    return [Task(*fields) for fields in pickle.loads(body)]
