"""Where a worker process begins."""

from __future__ import annotations

import atexit
import contextlib
import gc
import socket
import sys
import traceback
import weakref
from collections.abc import Collection
from dataclasses import replace
from typing import Any, assert_never

import torch

from .._core.health.worker_phases import CLEAN, OURS
from .._linux import platform_support
from .._loading.dataset_mutations import Info
from .._loading.job import AtEnd, Job
from .._torch_internals import set_worker_info
from .._transport.framing import Kind
from .._transport.worker_slabs import Arena
from . import parent_watch, signal_handlers
from .channel import Channel, MainGone
from .collate import collate_into
from .loop import serve
from .private_file_offsets import own_offsets, positions, take_away
from .private_lmdb_environments import reopen
from .stack_sampler import StackSampler
from .thread_pool_limits import cap_pools
from .worker_seed import seed_worker
from .worker_spec import Sealed, WorkerSpec

TOLD = 4000  # characters of an error, and of its traceback


def run(spec: WorkerSpec, sock: socket.socket) -> bool:
    """Live one life: announce it, serve tickets until told to stop or the main process ends.
    Return whether it was told to stop. The descriptor of its channel stays open."""
    parent_watch.name_process(f"af_worker_{spec.seat}")
    if not spec.prepared:
        prepare(forked=False, as_torch=is_as_torch(spec.sealed or spec.job))
        # It ends as Python does: libraries would take what is frozen for a leak, and say so.
        atexit.register(gc.unfreeze)
    signal_handlers.restore(spec.forgets, spec.job.handlers if spec.sealed is None else {})
    parent_watch.unblock_interrupts()
    parent_watch.end_with(spec.ends_with, by_kernel=spec.by_kernel)
    parent_watch.go_first()
    # Else its parent has its own, and moves none of them.
    own_offsets(positions(spec.held) if spec.positions is None else spec.positions)
    channel = Channel(sock)
    inherited = set(_finalizers())
    try:
        sealed = spec.sealed
        channel.say(Kind.READY, sealed is not None)
        witness = None
        if spec.trace is not None:
            witness = StackSampler(spec.status, spec.trace, (sealed or spec.job).look_s)
        if sealed is not None:
            spec = _opened(spec, sealed, channel)
            signal_handlers.restore((), spec.job.handlers)
        reopen(spec.held.environments, spec.job.dataset)
        _settle(spec)
        arena = Arena()
        collate_into(arena)
        serve(spec, channel, arena, witness)
        _finalize(spec.job, inherited)
        return True
    except MainGone:
        return False
    except SystemExit as error:  # the user's code ends this process
        if witness is not None:
            witness.note_exit(error)
        raise
    finally:
        # Not closed but left to the end of the process: a closed channel on a living process
        # means to the main process that this life is of no use any more.
        sock.detach()


def is_as_torch(job: Job | Sealed) -> bool:
    """Whether workers are to compute what torch's do, to the last bit."""
    return isinstance(job, Job) and job.torch_draws


def prepare(*, forked: bool, as_torch: bool = False) -> None:
    """Make this process, and those forked from it, fit for workers. `forked`: it is a copy of the
    main process itself. `as_torch`: see `is_as_torch`."""
    platform_support.serves_a_loader = True
    signal_handlers.leave_to_main()
    # What was there before is not ours to collect. In a forked worker a full collection would write
    # to every page of it, and so copy all of it: 100 ms for an interpreter with torch, and memory.
    gc.freeze()
    if as_torch:
        torch.set_num_threads(1)  # other pools keep theirs: another number of threads, other bits
    else:
        cap_pools(forked=forked)


def _opened(spec: WorkerSpec, sealed: Sealed, channel: Channel) -> WorkerSpec:
    """Open the job. If that fails the main process is told, and ends this one."""
    words, at = spec.status.steps
    words[at] = CLEAN
    try:
        job, held = sealed.open()
    except BaseException as error:  # sys.exit, too
        channel.say(Kind.UNFIT, told_of(error))
        raise SystemExit(1) from None
    channel.say(Kind.OPENED, sealed.took)
    take_away(held)
    words[at] = OURS
    return replace(spec, job=job, held=held, sealed=None)


def told_of(error: BaseException) -> tuple[str, str]:
    """Give an error that was caught in words, and its traceback, as far as a message takes them."""
    why = type(error).__name__
    with contextlib.suppress(Exception):  # it may not even have a text
        why += f": {error}"
    return why[:TOLD], traceback.format_exc()[-TOLD:]


def _finalize(job: Job, inherited: Collection[Any]) -> None:
    """Finalize what torch's worker would, while all else is still there. A finalizer that hangs is
    ended with its worker, by the deadline that any worker has to leave. `inherited`: finalizers of
    the processes that this one descends from."""
    match job.at_end:
        case AtEnd.DATASET:
            _release(job)
        case AtEnd.WHAT_IT_MADE:  # in the order in which Python does it, when it ends
            for each in reversed([each for each in _finalizers() if each not in inherited]):
                try:
                    if each.atexit:
                        each()
                except Exception:
                    sys.excepthook(*sys.exc_info())
        case AtEnd.NOTHING:
            pass
        case _:
            assert_never(job.at_end)


def _finalizers() -> list[Any]:
    return list(getattr(weakref.finalize, "_registry", ()))


def _release(job: Job) -> None:
    set_worker_info(None)
    dataset, is_finalized = None, hasattr(type(job.dataset), "__del__")
    with contextlib.suppress(TypeError):  # a list, say
        is_finalized |= weakref.getweakrefcount(job.dataset) > 0  # by `weakref.finalize`
        dataset = weakref.ref(job.dataset)
    object.__setattr__(job, "dataset", None)  # in this process, of all that was left to it
    if is_finalized and dataset is not None and dataset() is not None:
        # It is in a cycle. To find it takes 200 ms, for which the loop waits.
        gc.unfreeze()
        gc.collect()


def _settle(spec: WorkerSpec) -> None:
    """Make this process what a torch worker is: its own seed, worker info."""
    job = spec.job
    as_worker = spec.seat
    if job.torch_draws and not job.streams:
        # What its predecessor drew is not known. It must not all be drawn again: a number that no
        # other worker has gives it seeds that nobody has had.
        as_worker += spec.brief.heir * job.num_workers
    seed = seed_worker(job.base_seed, as_worker)
    set_worker_info(Info(id=spec.seat, num_workers=job.num_workers, seed=seed, dataset=job.dataset))
