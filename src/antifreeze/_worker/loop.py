"""The life of a worker: a ticket in, a parcel out, one after the other."""

from __future__ import annotations

import os
import pickle
from typing import Any

import torch
from torch.utils.data import IterDataPipe
from torch.utils.data.graph_settings import apply_random_seed

from .._clock import monotonic
from .._core.accounts import Timings
from .._core.events import Outcome
from .._transport.exceptions import add_note, pack_exception
from .._transport.framing import Kind
from .._transport.packing import Packed, Unpackable, find_unpackable, pack
from .._transport.tickets import decode_ticket
from ..errors import TransportFailed
from .channel import Channel
from .fetch import Fetcher, StreamOver
from .spec import WorkerSpec


def serve(spec: WorkerSpec, channel: Channel) -> None:
    """Serve until told to stop. What the user's code raises goes to the main process."""
    desk = Desk(spec)
    desk.open(spec.shared_seed, first=True)
    channel.say(Kind.EPOCH_BEGUN, spec.epoch)
    while True:
        kind, body = channel.receive()
        if kind is Kind.STOP:
            return
        if kind is Kind.BEGIN_EPOCH:
            epoch, shared_seed = pickle.loads(body)
            desk.open(shared_seed, first=False)
            channel.say(Kind.EPOCH_BEGUN, epoch)
        elif kind is Kind.TICKET:
            number, position, indices, unreadable = decode_ticket(body)
            if unreadable is None:
                channel.send_parcel(number, *desk.load(position, indices))
            else:
                channel.send_parcel(number, *desk.cannot_read(position, unreadable))


class Desk:
    """Where tickets are worked on."""

    def __init__(self, spec: WorkerSpec) -> None:
        self._spec = spec
        self._fetcher: Fetcher | None = None
        self._broken: BaseException | None = None  # what setting up raised
        self._told = False

    def open(self, shared_seed: int | None, *, first: bool) -> None:
        """Prepare for an epoch. An error here is the answer to the tickets that follow."""
        spec = self._spec
        self._fetcher, self._broken, self._told = None, None, False
        doing = "preparing the dataset"
        try:
            if isinstance(spec.job.dataset, IterDataPipe) and shared_seed is not None:
                apply_random_seed(spec.job.dataset, torch.Generator().manual_seed(shared_seed))
            if first and spec.job.init_fn is not None:
                doing = f"calling worker_init_fn({spec.seat})"
                spec.job.init_fn(spec.seat)
            doing = "calling iter() on the dataset"
            self._fetcher = Fetcher(spec.job)
        except StopIteration as error:
            self._broken = RuntimeError(f"StopIteration was raised while {doing}")
            self._broken.__cause__ = error
        except Exception as error:
            add_note(error, self._note(doing))
            self._broken = error

    def load(self, position: int, indices: Any) -> tuple[Outcome, Timings, Packed | None]:
        begun_at = monotonic()
        fetcher = self._fetcher
        if fetcher is None:
            return self._refuse(begun_at)
        try:
            batch = fetcher.load(indices)
        except StreamOver:
            return Outcome.ENDED, Timings(begun_at=begun_at, sealed_at=monotonic()), None
        except SystemExit:
            raise  # the user's code ends this process
        except BaseException as error:  # a KeyboardInterrupt of its own making, say
            packed = self._pack_error(error, fetcher.doing(), position)
            return Outcome.FAILED, self._timings(fetcher, begun_at, monotonic()), packed
        loaded_at = monotonic()
        try:
            packed = pack(batch)
        except Unpackable as error:
            packed = self._pack_error(
                self._explain(batch, error),
                f"handing over what came of {fetcher.doing()}",
                position,
            )
            return Outcome.FAILED, self._timings(fetcher, begun_at, loaded_at), packed
        return Outcome.LOADED, self._timings(fetcher, begun_at, loaded_at), packed

    def cannot_read(
        self, position: int, error: Exception
    ) -> tuple[Outcome, Timings, Packed | None]:
        """Answer a ticket whose indices pickle in the main process and fail to unpickle here."""
        return Outcome.FAILED, Timings(), self._pack_error(error, "reading the indices", position)

    def _refuse(self, begun_at: float) -> tuple[Outcome, Timings, Packed | None]:
        timings = Timings(begun_at=begun_at, sealed_at=monotonic())
        if self._broken is None or (self._told and self._spec.job.streams):
            return Outcome.ENDED, timings, None  # a stream that could not begin is over
        self._told = True
        where = f"in DataLoader worker process {self._spec.seat}"
        return Outcome.FAILED, timings, pack(pack_exception(self._broken, where, ()))

    def _pack_error(self, error: BaseException, doing: str, position: int) -> Packed:
        where = f"in DataLoader worker process {self._spec.seat}"
        return pack(pack_exception(error, where, (self._note(doing, position),)))

    def _note(self, doing: str, position: int | None = None) -> str:
        batch = "" if position is None else f" (batch {position})"
        return (
            f"antifreeze: raised while {doing}{batch}, in worker {self._spec.seat}"
            f" (pid {os.getpid()})"
        )

    def _explain(self, batch: Any, error: Unpackable) -> TransportFailed:
        try:
            path, thing = find_unpackable(batch)
        except Exception:  # objects that cannot even be looked at
            path, thing = "batch", batch
        return TransportFailed.cannot_pack(path, type(thing).__name__, str(error))

    @staticmethod
    def _timings(fetcher: Fetcher, begun_at: float, loaded_at: float) -> Timings:
        now = monotonic()
        return Timings(fetcher.fetch_s, fetcher.collate_s, now - loaded_at, begun_at, now)
