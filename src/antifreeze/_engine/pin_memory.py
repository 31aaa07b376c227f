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

import torch

from .._core.commands import Force
from .._core.events import LeasesReturned, Outcome, ParcelsArrived, ProgramForked
from .._core.health.memory_growth import Room
from .._core.health.stall_detection import Activity, Sight
from .._core.limits import LIMITS
from .._core.tickets import Errand
from .._processes.backend_protocol import Backend, LocalParcel, Notice, Parcel, Watch
from .._reporting.wait_totals import Usage
from .._torch_internals import pin_memory
from .._transport.exceptions import pack_exception, rebuild_exception
from .._worker import thread_start
from .._worker.worker_spec import EpochBrief


class Pinner(Protocol):
    """The device's part."""

    @property
    def device(self) -> str: ...

    def enter_thread(self) -> None:
        """Prepare the thread that will pin."""

    def pin(self, batch: Any) -> Any: ...


class AcceleratorPinner:
    """Pin for the current accelerator, as torch's loader does."""

    def __init__(self, device: str | None) -> None:
        self._device_type = device
        self._index = torch.accelerator.current_device_index()

    @property
    def device(self) -> str:
        return str(self._index)

    def enter_thread(self) -> None:
        torch.set_num_threads(1)  # thread-local; a copy must not take the cores of the model
        torch.accelerator.set_device_index(self._index)

    def pin(self, batch: Any) -> Any:
        return pin_memory(batch, self._device_type)


class PinnedBackend:
    """Another backend, with pinning. The thread starts with the first batch, after the workers:
    a fork in the middle of its start would copy locks it holds."""

    def __init__(self, inner: Backend, pinner: Pinner) -> None:
        self._inner = inner
        self._pinner = pinner
        self._work: queue.SimpleQueue[Notice | None] = queue.SimpleQueue()  # bounded by the leases
        self._done: deque[list[Notice]] = deque()  # what came of each notice
        self._cannot: BaseException | None = None  # why nothing can be pinned
        self._under_way = 0  # notices given to the thread and not yet collected
        self.thread = threading.Thread(target=self._run, name="antifreeze-pin", daemon=True)

    def wait(self, timeout_s: float | None) -> None:
        self._inner.wait(0.0 if self._done else timeout_s)

    def collect(self) -> Sequence[Notice]:
        notices: list[Notice] = []
        for notice in self._inner.collect():
            if self._under_way or notice.parcels:
                self._under_way += 1
                self._work.put(notice)
            else:  # nothing before it is being pinned: it need not queue
                notices.append(notice)
        if self._under_way and self.thread.ident is None and not thread_start.start(self.thread):
            raise RuntimeError("can't start new thread")
        if threading.current_thread() is self.thread:  # a finalizer, in the middle of our own work
            while not self._work.empty():
                self._pass_on(self._work.get())
        while self._done:
            self._under_way -= 1
            notices.extend(self._done.popleft())
        return notices

    def close(self) -> None:
        self._work.put(None)
        if self.thread.is_alive() and threading.current_thread() is not self.thread:
            self.thread.join(LIMITS.closing.pinning_s)
        self._done.clear()
        self._inner.close()

    def defer(self) -> None:
        self._inner.defer()

    def settle(self) -> None:
        self._inner.settle()

    def start(self, seat: int, life: int, brief: EpochBrief) -> None:
        self._inner.start(seat, life, brief)

    def begin_epoch(self, seat: int, life: int, brief: EpochBrief) -> None:
        self._inner.begin_epoch(seat, life, brief)

    def send(self, seat: int, life: int, errands: Sequence[Errand]) -> None:
        self._inner.send(seat, life, errands)

    def stop(self, seat: int, life: int) -> None:
        self._inner.stop(seat, life)

    def kill(
        self, seat: int, life: int, force: Force, *, doubted: bool = False, unfit: str = ""
    ) -> None:
        self._inner.kill(seat, life, force, doubted=doubted, unfit=unfit)

    def expect_turn(self) -> None:
        self._inner.expect_turn()

    def look(self) -> Sequence[Sight]:
        """See nobody while something is being pinned: who brought it is not late."""
        return () if self._under_way else self._inner.look()

    def examine(self, seat: int, life: int) -> Activity | None:
        return self._inner.examine(seat, life)

    def room(self) -> Room | None:
        return self._inner.room()

    def usage(self) -> Sequence[Usage]:
        return self._inner.usage()

    def explain(self, seat: int, life: int) -> None:
        self._inner.explain(seat, life)

    def release(self, lock: int) -> str:
        return self._inner.release(lock)

    def resume(self, seat: int, life: int) -> None:
        self._inner.resume(seat, life)

    def abandon(self, seat: int, life: int) -> None:
        self._inner.abandon(seat, life)

    def returns(self) -> Sequence[LeasesReturned | ProgramForked]:
        return self._inner.returns()

    def watch(self, *, parcels: bool = False) -> Watch | None:
        return self._inner.watch(parcels=True)

    def poll_urgent(self) -> None:
        """Look for parcels, too: they can be pinned while the loop is away."""
        self._inner.wait(0.0)

    def wake(self) -> None:
        self._inner.wake()

    def label(self, seat: int, life: int) -> str:
        return self._inner.label(seat, life)

    def workers(self) -> list[Any]:
        return self._inner.workers()

    def await_births(self) -> None:
        self._inner.await_births()

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
        event = notice.event
        if not isinstance(event, ParcelsArrived) or event.outcome is not Outcome.LOADED:
            self._done.append([notice])
            return
        count = len(notice.parcels)
        pinned_notices = []
        timings = None if event.timings is None else event.timings.parts(count)
        for parcel in notice.parcels:  # one notice each: some may fail
            pinned = self._pin(parcel)
            told = replace(
                event,
                numbers=(parcel.number,),
                outcome=pinned.outcome,
                work_s=None if event.work_s is None else event.work_s / count,
                in_slab=pinned.in_slab,
                slab_bytes=event.slab_bytes // count,
                timings=None if timings is None else next(timings),
            )
            pinned_notices.append(Notice(told, (pinned,)))
        self._done.append(pinned_notices)

    def _pin(self, parcel: Parcel) -> Parcel:
        """Pin one batch. What the device does not pin (arrays, say) still lies in the slab."""
        try:
            if self._cannot is not None:
                raise self._cannot
            opened = parcel.open()
            batch, remark = self._pinner.pin(opened), parcel.remark(opened)
            del opened
        except BaseException as error:
            where = f"in pin memory thread for device {self._pinner.device}"
            failed = rebuild_exception(pack_exception(error, where, ()))
            return LocalParcel(parcel.number, Outcome.FAILED, failed)
        return LocalParcel(parcel.number, Outcome.LOADED, batch, remark, parcel.in_slab)
