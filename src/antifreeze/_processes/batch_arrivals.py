"""Parcels as they come from a worker, or instead of it: what lies where, and the event they are."""

from __future__ import annotations

from .._core.events import Outcome, ParcelsArrived
from .._core.tickets import Errand
from .._transport.batch_messages import Bundle, ReceivedParcel
from .._transport.framing import Frame
from .._transport.mapped_slabs import SlabView
from .backend_protocol import LocalParcel, Notice
from .worker_socket import Line


def parcels_in(line: Line, frame: Frame) -> Notice:
    """Read a message with parcels."""
    bundle = Bundle.decode(frame.body)
    outcome, timings, shelf = bundle.outcome, bundle.timings, line.shelf
    if frame.descriptor is not None or frame.lost:
        slot, _, size = bundle.marks[0]
        shelf.put(slot, frame.descriptor, size)
    slab_bytes = 0
    views: list[SlabView | None] = []
    for slot, generation, size in bundle.marks:
        views.append(shelf.view(slot, generation))
        slab_bytes += size
    slabs = views or [None] * len(bundle.parcels)
    parcels = [
        ReceivedParcel(number, outcome, packed, slab)
        for (number, packed), slab in zip(bundle.parcels, slabs, strict=True)
    ]
    event = ParcelsArrived(
        line.seat,
        line.life,
        tuple([number for number, _ in bundle.parcels]),
        outcome,
        timings.work_s,
        bool(views),
        slab_bytes,
        timings,
    )
    return Notice(event, parcels)


def failed_to_send(seat: int, life: int, errand: Errand, error: Exception) -> Notice:
    """Return what arrives instead of a batch whose ticket cannot be sent to the worker."""
    number = errand.ticket.number
    event = ParcelsArrived(seat, life, (number,), Outcome.FAILED)
    return Notice(event, (LocalParcel(number, Outcome.FAILED, error),))
