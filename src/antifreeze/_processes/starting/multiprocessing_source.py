"""Workers that multiprocessing starts one by one, as a context of the user's says."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from typing import Any

from ..._core.limits import LIMITS
from ..._loading.job import Job
from ..._transport.descriptors import Descriptor
from ..._transport.stack_file import StackFile
from ..._transport.status_board import StatusBoard
from ..._worker.main import run
from ..replication.job_pickler import SentJob
from .inherited_handles import warn_of_connections
from .process_creation import disown, without_interrupts
from .worker_source import Born, Exited, News, Wanted, WorkerSource, worker_name


class MultiprocessingSource(WorkerSource):
    """Workers are processes of one multiprocessing context, each started anew."""

    def __init__(self, job: Job, status: StatusBoard, context: Any) -> None:
        self._context, self._status = context, status
        inherited = context.get_start_method() == "fork"
        if inherited:
            warn_of_connections(job.dataset)
        self._sent: Any = job if inherited else SentJob(job)
        self._processes: dict[tuple[int, int], BaseProcess] = {}
        self._news: list[News] = []

    def ask(self, wanted: Wanted, channel: socket.socket, trace: StackFile) -> None:
        """Start a process. It leaves no stack: how a descriptor gets to it is its context's way."""
        by_server = self._context.get_start_method() == "forkserver"
        spec = wanted.spec(
            self._sent,
            self._status,
            by_kernel=by_server or threading.current_thread() is threading.main_thread(),
        )
        process = self._context.Process(
            target=run, args=(spec, channel), name=worker_name(wanted.seat), daemon=True
        )
        try:
            with without_interrupts():
                process.start()
            pidfd = Descriptor(os.pidfd_open(process.pid))
        except BaseException:
            if process.pid is not None:  # it runs, and nobody would ever hear of it
                process.kill()
                process.join(LIMITS.starting.reap_s)
            disown(process)
            raise
        self._processes[wanted.seat, wanted.life] = process
        self._news.append(Born(wanted.seat, wanted.life, process.pid, pidfd))

    def hear(self) -> Sequence[News]:
        news, self._news = self._news, []
        return news

    def ended(self, seat: int, life: int) -> None:
        """Reap it, and let go of it."""
        process = self._processes.pop((seat, life), None)
        if process is not None:
            if process.exitcode is None:
                # From a fork server the exit status comes a little later.
                process.join(LIMITS.starting.reap_s)
            self._news.append(Exited(seat, life, process.exitcode))
            disown(process)

    def close(self) -> None:
        left = list(self._processes.values())
        self._processes.clear()
        disown(*left)

    def __repr__(self) -> str:
        method = self._context.get_start_method()
        return f"<MultiprocessingSource by {method}, {len(self._processes)} alive>"
