"""Batches moved to page-locked memory on their way to the loop, off the caller's thread.

Wraps another backend: every notice passes through one thread in the order it came, which opens
and pins the batches. To the driver a parcel has arrived when it is pinned.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from .._core.commands import Force
from .._core.events import Outcome, ParcelArrived
from .._core.leases import Lease
from .._core.tickets import Ticket
from .._transport.exceptions import pack_exception, rebuild_exception
from .base import Backend, EpochBrief, LocalParcel, Notice, Parcel

JOIN_S = 5.0  # a pinning call is a memory copy; a thread that needs longer is left behind


class Pinner(Protocol):
    """The device's part."""

    @property
    def device(self) -> str: ...

    def enter_thread(self) -> None:
        """Prepare the thread that will pin."""

    def pin(self, batch: Any) -> Any: ...


class PinnedBackend:
    """Another backend, with pinning. The thread starts with the first batch, after the workers:
    a fork in the middle of its start would copy locks it holds."""

    def __init__(self, inner: Backend, pinner: Pinner) -> None:
        self._inner = inner
        self._pinner = pinner
        self._work: queue.SimpleQueue[Notice | None] = queue.SimpleQueue()  # bounded by the leases
        self._done: deque[Notice] = deque()
        self._cannot: BaseException | None = None  # why nothing can be pinned
        self._under_way = 0  # notices given to the thread and not yet collected
        self.thread = threading.Thread(target=self._run, name="antifreeze-pin", daemon=True)

    def wait(self, timeout_s: float | None) -> None:
        self._inner.wait(0.0 if self._done else timeout_s)

    def collect(self) -> Sequence[Notice]:
        notices: list[Notice] = []
        for notice in self._inner.collect():
            if self._under_way or notice.parcel is not None:
                self._under_way += 1
                self._work.put(notice)
            else:  # nothing before it is being pinned: it need not queue
                notices.append(notice)
        if self._under_way and self.thread.ident is None:
            self.thread.start()
        if threading.current_thread() is self.thread:  # a finalizer, in the middle of our own work
            while not self._work.empty():
                self._pass_on(self._work.get())
        while self._done:
            self._under_way -= 1
            notices.append(self._done.popleft())
        return notices

    def close(self) -> None:
        self._work.put(None)
        if self.thread.ident is not None and threading.current_thread() is not self.thread:
            self.thread.join(JOIN_S)
        self._done.clear()
        self._inner.close()

    def start(self, seat: int, life: int, brief: EpochBrief) -> None:
        self._inner.start(seat, life, brief)

    def begin_epoch(self, seat: int, life: int, brief: EpochBrief) -> None:
        self._inner.begin_epoch(seat, life, brief)

    def send(self, seat: int, life: int, ticket: Ticket, lease: Lease) -> None:
        self._inner.send(seat, life, ticket, lease)

    def stop(self, seat: int, life: int) -> None:
        self._inner.stop(seat, life)

    def kill(self, seat: int, life: int, force: Force) -> None:
        self._inner.kill(seat, life, force)

    def abandon(self, seat: int, life: int) -> None:
        self._inner.abandon(seat, life)

    def wake(self) -> None:
        self._inner.wake()

    def label(self, seat: int, life: int) -> str:
        return self._inner.label(seat, life)

    def workers(self) -> list[Any]:
        return self._inner.workers()

    def _run(self) -> None:
        try:
            self._pinner.enter_thread()
        except (
            BaseException
        ) as error:  # every batch says so; the loop must not wait for a dead thread
            self._cannot = error
        while (notice := self._work.get()) is not None:  # bounded: `close` puts None
            self._pass_on(notice)
            del notice
            self._inner.wake()

    def _pass_on(self, notice: Notice | None) -> None:
        if notice is None:
            return
        parcel, event = notice.parcel, notice.event
        if parcel is not None and isinstance(event, ParcelArrived):
            pinned = self._pin(parcel)
            notice = Notice(replace(event, outcome=pinned.outcome), pinned)
        self._done.append(notice)

    def _pin(self, parcel: Parcel) -> Parcel:
        if parcel.outcome is not Outcome.LOADED:
            return parcel
        try:
            if self._cannot is not None:
                raise self._cannot
            opened = parcel.open()
            batch, remark = self._pinner.pin(opened), parcel.remark(opened)
        except BaseException as error:
            where = f"in pin memory thread for device {self._pinner.device}"
            failed = rebuild_exception(pack_exception(error, where, ()))
            return LocalParcel(Outcome.FAILED, parcel.timings, failed)
        return LocalParcel(Outcome.LOADED, parcel.timings, batch, remark)
