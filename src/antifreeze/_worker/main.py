"""Where a worker process begins."""

from __future__ import annotations

import gc
import socket

from torch.utils.data import _utils as torch_data

from .. import _platform
from .._transport.arena import Arena
from .._transport.framing import Kind
from . import guard
from .channel import Channel, MainGone
from .collate import collate_into
from .files import own_offsets, positions
from .loop import serve
from .observing import Info
from .pools import cap_pools
from .progress import Witness
from .seeding import seed_worker
from .spec import WorkerSpec


def run(spec: WorkerSpec, sock: socket.socket) -> None:
    """Live one life: announce it, serve tickets until told to stop or the main process ends."""
    if not spec.prepared:
        prepare(forked=False)
    guard.forget(spec.forgets)
    guard.unblock_interrupts()
    guard.end_with(spec.ends_with, by_kernel=spec.by_kernel)
    guard.go_first()
    own_offsets(positions(spec.held))  # its parent has its own, and moves none of them
    channel = Channel(sock)
    try:
        channel.say(Kind.READY)
        if spec.trace is not None:
            Witness(spec.status, spec.trace, spec.job.look_s)
        _settle(spec)
        arena = Arena()
        collate_into(arena)
        serve(spec, channel, arena)
    except MainGone:
        pass
    finally:
        # Not closed but left to the end of the process: a closed channel on a living process
        # means to the main process that this life is of no use any more.
        sock.detach()


def prepare(*, forked: bool) -> None:
    """Make this process, and those forked from it, fit for workers. `forked`: it is a copy of the
    main process itself."""
    _platform.serves_a_loader = True
    guard.leave_signals_to_main()
    # What was there before is not ours to collect. In a forked worker a full collection would write
    # to every page of it, and so copy all of it: 100 ms for an interpreter with torch, and memory.
    gc.freeze()
    cap_pools(forked=forked)


def _settle(spec: WorkerSpec) -> None:
    """Make this process what a torch worker is: its own seed, worker info."""
    job = spec.job
    seed = seed_worker(job.base_seed, spec.seat)
    # `torch.utils.data.get_worker_info()` reads this name; there is no public way to set it.
    torch_data.worker._worker_info = Info(
        id=spec.seat, num_workers=job.num_workers, seed=seed, dataset=job.dataset
    )
