"""The life of a worker: a ticket in, a parcel out, one after the other."""

from __future__ import annotations

import os
import pickle
from dataclasses import replace
from typing import Any

import torch

from .._core.batch_timings import Timings
from .._core.events import Outcome
from .._core.health.worker_phases import HAND_OVER, INDICES, INIT, ITER, OURS, PACK
from .._linux.clock import monotonic
from .._loading.dataset_mutations import Attributes, States, drawn_since, states_of
from .._loading.error_advice import is_next_step
from .._loading.fetch import Fetcher
from .._loading.line_profiler import SLOW_S
from .._loading.observations import StreamState, Suspects
from .._loading.on_error import NothingLeft
from .._loading.resumable_streams import Bookmark, carry_on
from .._loading.rng_adapters import own_generators
from .._loading.sample_rng import Randomness, salts_in
from .._loading.stream_fetch import Seen, StreamOver
from .._torch_internals import IterDataPipe, apply_random_seed
from .._transport.exceptions import add_note, pack_exception
from .._transport.framing import Kind
from .._transport.memory import MemoryShort
from .._transport.packing import (
    Unpackable,
    bring_inside,
    find_unpackable,
    pack,
    says_cannot,
)
from .._transport.ticket_codec import Task, decode_tickets
from .._transport.worker_slabs import Arena
from ..errors import TransportFailed, WorkerFailed
from . import parent_watch
from .channel import Channel, NothingSent
from .error_notes import name_taken, needed_no_fork, needs_no_fork, reasons
from .outbox import Outbox
from .stack_sampler import StackSampler
from .worker_spec import EpochBrief, WorkerSpec

NOT_KNOWN = (
    "a worker was replaced between two epochs, and nobody knows what its dataset would have begun"
    " the next one with: its state_dict() does not tell which sample comes next, and has changed"
    " since that epoch began. This worker's stream ends here. Let state_dict() tell exactly which"
    " sample comes next"
)


def serve(
    spec: WorkerSpec, channel: Channel, arena: Arena, witness: StackSampler | None = None
) -> None:
    """Serve until told to stop. What the user's code raises goes to the main process."""
    if spec.job.streams or spec.job.torch_draws:
        channel.keep_order()
    outbox = Outbox(channel, spec.status)
    words, at = spec.status.steps
    desk = Desk(spec, outbox, arena, witness)
    brief = spec.brief
    if brief.follows:
        kind, body = channel.receive(outbox.flush, lambda: None)
        if kind is not Kind.BEGIN_EPOCH:
            return
        brief = pickle.loads(body)
    desk.open(brief, first=True)
    channel.say(Kind.EPOCH_BEGUN, brief.epoch)
    while True:
        kind, body = channel.receive(outbox.flush, desk.rest)
        if kind is Kind.STOP:
            desk.look_back()
            if witness is not None:
                outbox.tell(witness.places())
            return
        if kind is Kind.BEGIN_EPOCH:
            outbox.clear()  # of an epoch that is over
            desk.look_back()
            brief = pickle.loads(body)
            desk.open(brief, first=False)
            channel.say(Kind.EPOCH_BEGUN, brief.epoch)
        elif kind is Kind.EXPLAIN:
            desk.explain_growth()
        elif kind is Kind.TICKETS:
            tasks = decode_tickets(body)
            spec.status.working_on = tasks[0].number
            if witness is not None:
                witness.rouse()
            if len(tasks) > 1:
                outbox.expect_bundles()
            desk.measure(alone=len(tasks) == 1)
            for task in tasks:
                spec.status.working_on = task.number
                if desk.serve(task) and channel.overtaken():
                    break
            if len(tasks) == 1:  # it came alone: batches take their time, and travel alone
                outbox.flush()
            spec.status.working_on = 0
            words[at] = OURS
            if witness is not None and witness.due:
                outbox.tell(witness.places())


class Desk:
    """Where tickets are worked on."""

    def __init__(
        self, spec: WorkerSpec, outbox: Outbox, arena: Arena, witness: StackSampler | None = None
    ) -> None:
        self._spec, self._witness = spec, witness
        self._outbox = outbox
        self._arena = arena
        self._fetcher: Fetcher | None = None
        self._randomness: Randomness | None = None  # of samples; streams have none, nor has torch
        self._broken: BaseException | None = None  # what setting up raised
        self._told = False
        self._steps = spec.status.steps
        self._is_first = True  # the next batch of a stream
        self._were: Attributes | None = None
        self._bookmark: Bookmark | None = None  # in a stream
        if spec.job.streams:
            self._bookmark = Bookmark(spec.job)
        self._lost = ""  # why its stream cannot go on, in this epoch or in later ones
        self._after_load: list[Seen] = []  # see `Fetcher.unlike`
        self._drawn_from: States = []  # generators of a stream's own

    def open(self, brief: EpochBrief, *, first: bool) -> None:
        """Prepare for an epoch. An error here is the answer to the tickets that follow."""
        spec, shared_seed = self._spec, brief.shared_seed
        self._fetcher, self._broken, self._told = None, None, False
        self._is_first = spec.job.streams and spec.job.num_workers > 1
        sows = not (spec.job.streams or spec.job.torch_draws)
        doing = "preparing the dataset"
        self._at(ITER)
        try:
            if isinstance(spec.job.dataset, IterDataPipe) and shared_seed is not None:
                apply_random_seed(spec.job.dataset, torch.Generator().manual_seed(shared_seed))
            roots = spec.job.dataset, spec.job.collate_fn
            salts: dict[str, int] | None = None  # as they are
            if first and spec.job.init_fn is not None:
                if sows:
                    doing = "looking for generators in the dataset"
                    salts = salts_in(*roots)
                doing = f"calling worker_init_fn({spec.seat})"
                self._at(INIT)
                try:
                    spec.job.init_fn(spec.seat)
                finally:
                    if spec.by_kernel:  # setuid() in there would have made the kernel forget
                        parent_watch.end_with(spec.ends_with, by_kernel=True)
            if first and sows:
                doing = "looking for generators in the dataset"
                self._randomness = Randomness(*roots, salts=salts)
            if first and not spec.job.streams:
                doing = "looking at the dataset"
                self._were = Attributes(spec.job.dataset)
            if self._randomness is not None:
                self._randomness.open(brief.seed, brief.epoch)
            if self._is_first:
                self._drawn_from = states_of(own_generators(roots[:1]), roots[0])
            if self._bookmark is not None:
                doing = "loading the state of the dataset"
                self._leave_behind(self._bookmark, brief, first=first)
            doing = "calling iter() on the dataset"
            fetcher = Fetcher(spec.job, self._randomness, self._arena, self._steps, brief.resume)
            if self._bookmark is not None:
                doing = "taking up the stream of a worker that was replaced"
                self._catch_up(fetcher)
                state = self._bookmark.open(fetcher.stream, brief.epoch, brief.resume)
                self._outbox.tell(state)
                fetcher.bookmark = self._bookmark
            self._fetcher = fetcher
        except StopIteration as error:
            self._broken = RuntimeError(f"StopIteration was raised while {doing}")
            self._broken.__cause__ = error
        except Exception as error:
            name_taken(error, self._spec.held)
            for note in (
                self._note(doing),
                *reasons(error, self._spec.held, self._spec.clean_since),
            ):
                add_note(error, note)
            self._broken = error
            self._tell_of_fork(needs_no_fork(error))
            if self._lost:  # whoever replaces this worker must not begin a later epoch by guess
                self._outbox.tell(StreamState(brief.epoch, 0, b"", useless=True, lost=True))
        self._at(OURS)

    def _leave_behind(self, bookmark: Bookmark, brief: EpochBrief, *, first: bool) -> None:
        """Bring the dataset to the beginning of an epoch: as another worker, which this one
        replaces, would have left the one before."""
        job = self._spec.job
        if brief.unknown:
            self._lost = NOT_KNOWN
        if self._lost:
            raise WorkerFailed(self._lost)
        for leg in brief.left:
            fetcher = Fetcher(job, None, None, self._steps, leg)
            self._catch_up(fetcher, leaving=True)
            fetcher.end()
        if brief.carried:
            carry_on(job, brief.carried, over=brief.carried_over)
        elif not first:
            self._outbox.tell(bookmark.before(brief.epoch))
        bookmark.begin()

    def _catch_up(self, fetcher: Fetcher, *, leaving: bool = False) -> None:
        fetcher.unlike, self._after_load = self._after_load, fetcher.after_load
        if self._bookmark is not None:
            fetcher.peek = self._bookmark.peek
        try:
            fetcher.catch_up(leaving=leaving)
        except WorkerFailed as error:
            self._lost = str(error)
            raise

    def _at(self, step: int) -> None:
        words, at = self._steps
        words[at] = step

    def measure(self, *, alone: bool) -> None:
        if self._fetcher is not None:
            self._fetcher.measure(alone=alone)

    def serve(self, task: Task) -> bool:
        """Work on one ticket and see to its parcel. Say whether something was sent."""
        fetcher = self._fetcher
        begun_at = monotonic()
        if fetcher is None:
            self._refuse(task, begun_at)
            return True
        self._at(INDICES)
        try:
            indices = task.indices()
        except Exception as error:  # they pickle in the main process and fail to unpickle here
            self._fail(task, error, "reading the indices", Timings())
            return True
        self._arena.begin(task.slot, task.renewed)
        try:
            batch = [
                fetcher.load(indices, task.position, task.spared)
            ]  # in a list, so that it can be let go of below
        except StreamOver:
            self._at(HAND_OVER)
            if self._bookmark is not None:
                self._outbox.tell(self._bookmark.ended(fetcher.asked))
            self._outbox.tell(fetcher.ending)
            timings = Timings(begun_at=begun_at, sealed_at=monotonic())
            self._outbox.send(task.number, Outcome.ENDED, None, timings)
            return True
        except NothingLeft:
            self._tell_failed(fetcher, task)
            self._arena.abort()
            self._at(HAND_OVER)
            timings = Timings(begun_at=begun_at, sealed_at=monotonic())
            self._outbox.send(task.number, Outcome.EMPTY, None, timings)
            return True
        except SystemExit:
            raise  # the user's code ends this process
        except BaseException as error:  # a KeyboardInterrupt of its own making, say
            self._tell_failed(fetcher, task)
            timings = fetcher.timings(begun_at, now := monotonic(), now)
            self._fail(task, error, fetcher.doing(), timings, fetcher.notes(error))
            return True
        if fetcher.failures:
            self._tell_failed(fetcher, task)
        if self._bookmark is not None:
            began = monotonic()
            self._outbox.tell(self._bookmark.printed(fetcher.number, fetcher.printed))
            self._bookmark.spend_on_prints(monotonic() - began)
        try:
            sent = self._hand_over(task, batch, fetcher, begun_at)
            if self._bookmark is not None and self._bookmark.watches(over=fetcher.over):
                self._outbox.flush()  # the state must not come before what it stands for
                self._at(ITER)
                began, over, asked = monotonic(), fetcher.over, fetcher.asked
                self._outbox.tell(self._bookmark.turn(over=over, asked=asked))
                self._bookmark.spend(monotonic() - began)
            return sent
        except (Unpackable, MemoryShort) as error:
            doing = f"handing over what came of {fetcher.doing()}"
            timings = fetcher.timings(begun_at, now := monotonic(), now)
            self._fail(task, self._explain(batch[0] if batch else None, error), doing, timings)
            return True

    def _tell_of_fork(self, unfit: bool) -> None:
        """Tell, before an error, that it comes of the fork: perhaps nobody needs to see it."""
        if unfit and not self._spec.clean_since:
            self._outbox.need_clean("uses an accelerator, which a forked process cannot")

    def _tell_failed(self, fetcher: Fetcher, task: Task) -> None:
        for failed in fetcher.failed():
            self._tell_of_fork(needed_no_fork(failed.traceback or failed.exception))
            self._outbox.tell(replace(failed, position=task.position))

    def _hand_over(self, task: Task, batch: list[Any], fetcher: Fetcher, begun_at: float) -> bool:
        """Pack the one batch in the list, let go of it, and send it or have it wait."""
        loaded_at = monotonic()
        self._at(PACK)
        packed = pack(batch[0], self._arena, as_views=self._spec.job.torch_draws)
        batch.clear()
        self._at(HAND_OVER)
        filled = self._arena.filled() if packed.slab_bytes else None
        if self._is_first:
            self._is_first = False
            self._outbox.tell(drawn_since(self._drawn_from))
        if self._spec.job.streams:
            for opening in fetcher.openings():
                self._outbox.tell(opening)
        try:
            slab = self._arena.seal(packed.slab_bytes)
            timings = fetcher.timings(begun_at, loaded_at, monotonic())
            if timings.fetch_s < SLOW_S:
                return self._outbox.put(task, packed, timings, slab)
            if self._witness is not None and not timings.slowest_s:
                timings = self._witness.looks.with_slowest(timings, task.number)
            self._outbox.flush()
            self._outbox.put(task, packed, timings, slab)
            self._outbox.flush()  # it goes alone: a message names one slow sample at the most
            return True
        except (NothingSent, OSError):  # no descriptor to give, or none that can be sent
            assert filled is not None
            inside = bring_inside(packed, filled.view)
            self._arena.give_up(task.slot)
            timings = fetcher.timings(begun_at, loaded_at, monotonic())
            self._outbox.send(task.number, Outcome.LOADED, inside, timings)
            return True

    def rest(self) -> None:
        """Tell, in a pause, what the next epoch would begin with."""
        if self._bookmark is not None and self._fetcher is not None:
            self._at(ITER)
            self._outbox.tell(self._bookmark.rest())
            self._at(OURS)

    def look_back(self) -> None:
        """Tell what the epoch has left in the dataset of this process."""
        if self._were is not None:
            self._outbox.tell(self._were.grown(self._spec.job.dataset))

    def explain_growth(self) -> None:
        """Tell what has grown in this process, as far as it can be seen."""
        from .growth_suspects import suspects  # few workers ever need it

        job = self._spec.job
        self._outbox.tell(
            Suspects(suspects(("dataset", job.dataset), ("collate_fn", job.collate_fn)))
        )

    def _refuse(self, task: Task, begun_at: float) -> None:
        timings = Timings(begun_at=begun_at, sealed_at=monotonic())
        if self._broken is None or (self._told and self._spec.job.streams):
            # A stream that could not begin is over.
            self._outbox.send(task.number, Outcome.ENDED, None, timings)
            return
        self._told = True
        where = f"in DataLoader worker process {self._spec.seat}"
        packed = pack(pack_exception(self._broken, where, ()))
        self._outbox.send(task.number, Outcome.FAILED, packed, timings)

    def _fail(
        self,
        task: Task,
        error: BaseException,
        doing: str,
        timings: Timings,
        more: tuple[str, ...] = (),
    ) -> None:
        self._tell_of_fork(needs_no_fork(error))
        self._arena.abort()
        if self._bookmark is not None:
            self._bookmark.pass_over()
        self._at(HAND_OVER)
        where = f"in DataLoader worker process {self._spec.seat}"
        why = reasons(error, self._spec.held, self._spec.clean_since)
        if why:  # what helps against a cause that is known is said with it
            more = tuple(note for note in more if not is_next_step(note))
        notes = (self._note(doing, task.position), *more, *why)
        name_taken(error, self._spec.held)
        packed = pack(pack_exception(error, where, notes))
        self._outbox.send(task.number, Outcome.FAILED, packed, timings)

    def _note(self, doing: str, position: int | None = None) -> str:
        batch = "" if position is None else f" (batch {position})"
        return (
            f"antifreeze: raised while {doing}{batch}, in worker {self._spec.seat}"
            f" (pid {os.getpid()})"
        )

    def _explain(self, batch: Any, error: Unpackable | MemoryShort) -> TransportFailed:
        if isinstance(error, MemoryShort):
            arena = self._arena
            return TransportFailed.no_memory(error.needed, error.left, len(arena), arena.size)
        own = error.__cause__
        if own is not None and says_cannot(own):
            own = None
        try:
            path, thing = find_unpackable(batch, own=own is not None)
        except Exception:  # objects that cannot even be looked at
            path, thing = "batch", batch
        failed = TransportFailed.cannot_pack(path, type(thing).__name__, str(error), own)
        failed.__cause__ = own  # its traceback says where
        return failed
