"""What a worker has loaded and not yet sent: tiny parcels wait a moment for company.

1. A parcel waits for a millisecond at most while others are being loaded. If the loop waits it
   goes at once, unless a message went less than a millisecond ago.
2. If the next sample turns out to be slow, or hangs, a thread sends what waits, a few milliseconds
   later (or when the sample lets go of the interpreter's lock). It starts with the first bundle;
   workers whose batches travel alone have no such thread.
"""

from __future__ import annotations

import threading

from .._core.batch_timings import Timings
from .._core.events import Outcome
from .._core.limits import LIMITS, BundleLimits
from .._linux.clock import monotonic
from .._loading.observations import Observation
from .._transport.batch_messages import Bundle
from .._transport.framing import Kind
from .._transport.packing import Packed
from .._transport.status_board import StatusLine
from .._transport.ticket_codec import Task
from .._transport.worker_slabs import Slab
from . import parent_watch, thread_start
from .channel import Channel, MainGone


class Outbox:
    """Send parcels, several of the small ones at a time. What is sent keeps its order."""

    def __init__(
        self, channel: Channel, status: StatusLine, limits: BundleLimits = LIMITS.bundles
    ) -> None:
        self._channel = channel
        self._status = status
        self._bundle = Bundle(Outcome.LOADED)
        self._bytes = 0
        self._since = 0.0  # when the oldest parcel was put in
        self._sent_at = 0.0  # when the last message went
        self._broke: OSError | None = None  # why the thread could not send
        self._lock = threading.RLock()  # against the thread of this process, nobody else
        self._put_some = threading.Event()
        self._nothing = threading.Event()  # never set: to sleep on
        self._thread: threading.Thread | None = None
        self._limits = limits
        self._full_bytes, self._slab_bytes = limits.message_bytes, limits.slab_bytes
        self._pause_s = limits.flush_s
        self._flush_s = limits.flush_s  # how long a parcel may wait for others

    def expect_bundles(self) -> None:
        """Be prepared for parcels that wait: have somebody who sends them in time."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._look, name="antifreeze-outbox", daemon=True
            )
            if not thread_start.start(self._thread):  # the machine gives none
                self._flush_s = 0.0

    def need_clean(self, words: str) -> None:
        """Tell that this process, as a fork of the main one, cannot do what it was asked for."""
        self.flush()
        self._channel.say(Kind.NEEDS_CLEAN, words)

    def put(self, task: Task, packed: Packed, timings: Timings, slab: Slab | None = None) -> bool:
        """Take a loaded parcel, and the slab it lies in. Say whether something was sent.

        Raises NothingSent if a new slab's descriptor is not taken by the kernel; the parcel is
        then not in the outbox.
        """
        with self._lock:
            return self._put(task, packed, timings, slab)

    def _put(self, task: Task, packed: Packed, timings: Timings, slab: Slab | None) -> bool:
        if bool(self._bundle.marks) != (slab is not None):
            self.flush()
        mark = None
        if slab is not None:
            if slab.descriptor is not None:
                self._send_new(task, packed, timings, slab)
                return True
            mark = (task.slot, task.generation, slab.memory.size)
            self._bytes += slab.memory.size * self._full_bytes // self._slab_bytes
        if not self._bundle.parcels:
            self._since = timings.sealed_at
        self._bundle.add(task.number, packed, timings, mark)
        self._bytes += packed.message_bytes
        now = timings.sealed_at
        if (
            self._bytes >= self._full_bytes
            or now - self._since >= self._flush_s
            or (now - self._sent_at >= self._pause_s and self._status.loop_waits)
        ):
            self.flush()
            return True
        if not self._put_some.is_set():
            self._put_some.set()
        return False

    def flush(self) -> None:
        with self._lock:
            if self._broke is not None:  # what it had is lost: end this life, others load it again
                raise RuntimeError("parcels could not be sent") from self._broke
            if self._bundle.parcels:
                bundle = self._bundle
                self.clear()
                self._transmit(bundle)

    def clear(self) -> None:
        """Forget what was not sent: a new epoch has begun."""
        with self._lock:
            self._bundle, self._bytes = Bundle(Outcome.LOADED), 0

    def send(self, number: int, outcome: Outcome, packed: Packed | None, timings: Timings) -> None:
        """Send one parcel that travels alone, after those before it."""
        bundle = Bundle(outcome)
        bundle.add(number, packed, timings)
        with self._lock:
            self.flush()
            self._transmit(bundle)

    def tell(self, seen: Observation | None) -> None:
        """Tell what was noticed, if anything was."""
        if seen is not None:
            self._channel.say(Kind.NOTICED, seen)

    def _look(self) -> None:
        """Send what has waited too long, whatever the worker is busy with. In the thread."""
        parent_watch.name_thread()
        looks = 0
        while True:  # bounded by the life of the worker
            if looks >= self._limits.idle_looks:
                with self._lock:
                    if not self._bundle.parcels:
                        self._put_some.clear()
                self._put_some.wait(self._limits.sleep_s)
                looks = 0
            self._nothing.wait(self._limits.look_s)
            with self._lock:
                if not self._bundle.parcels:
                    looks += 1
                elif monotonic() - self._since >= self._pause_s:
                    try:
                        self.flush()
                    except MainGone:
                        return  # the worker's own thread will notice
                    except OSError as error:
                        self._broke = error
                        return

    def _send_new(self, task: Task, packed: Packed, timings: Timings, slab: Slab) -> None:
        """Send a parcel that lies in a new slab, and the slab's descriptor with it."""
        self.flush()
        bundle = Bundle(Outcome.LOADED)
        mark = (task.slot, task.generation, slab.memory.size)
        bundle.add(task.number, packed, timings, mark)
        descriptor = slab.take_descriptor()
        assert descriptor is not None
        try:
            self._transmit(bundle, descriptor.number)
        finally:
            descriptor.close()

    def _transmit(self, bundle: Bundle, descriptor: int | None = None) -> None:
        self._channel.send(Kind.PARCELS, bundle.encode(), descriptor)
        self._sent_at = monotonic()
