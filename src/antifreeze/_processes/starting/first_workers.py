"""The first workers of an iterator, forked straight from the main process, as torch forks them.

A zygote that is forked first and then forks them costs the first batch one fork more, and an
epoch of a few batches a third of its time. So the first lives come before the zygote, from the
same process at the same moment: they are what it would have borne.

1. Forking takes the main process 3 ms, or 30 where it holds gigabytes, while the loop waits. So
   there are only as many as can be forked in a moment; the zygote bears the others.
2. Their exit status is known to the main process alone. Where the program takes that of all its
   children, or has the kernel forget it, there are none.
3. They end with the main process, not with the zygote.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import select
import signal
import socket
from multiprocessing.process import BaseProcess

from ..._core.limits import LIMITS, Limits
from ..._linux.clock import monotonic, process_time
from ..._transport.descriptors import Descriptor, keep_from_children
from ..._transport.stack_file import StackFile
from ..._transport.status_board import StatusBoard
from ..._worker.main import is_as_torch, prepare
from ..._worker.private_file_offsets import take_away
from ..._worker.worker_spec import WorkerSpec
from ..fork_safety import native_thread_pools, threads_at_fork
from ..fork_safety.reachable_objects import Reached
from .process_creation import disown, patiently, without_interrupts
from .worker_source import Born, Exited, Wanted, worker_name
from .zygote_main import Mother, live_one

_FORK = multiprocessing.get_context("fork")
_OF_TORCH = "torch."  # whose handler of SIGCHLD takes nobody's exit status


class FirstWorkers:
    """Lives that are children of the main process itself."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self._limits, self._cpu_s = limits, limits.starting.first_workers_cpu_s
        self._lives: dict[int, tuple[Wanted, BaseProcess, Descriptor]] = {}  # by pidfd
        self._ended = select.epoll()
        self.descriptor = self._ended.fileno()
        self._spent_s = 0.0
        keep_from_children(self)

    def takes_another(self) -> bool:
        """Whether the next life is better forked here than by a zygote."""
        return (
            self._spent_s < self._cpu_s
            and _knows_endings()
            and not native_thread_pools.ends_children()
        )

    @property
    def numbers(self) -> frozenset[tuple[int, int]]:
        """The seats and lives of those that have not ended."""
        return frozenset((wanted.seat, wanted.life) for wanted, _, _ in self._lives.values())

    def process_numbers(self) -> dict[int, int]:
        """Return the numbers that multiprocessing has given them, by their seats."""
        return {wanted.seat: each._identity[-1] for wanted, each, _ in self._lives.values()}

    def fork(
        self,
        wanted: Wanted,
        channel: socket.socket,
        trace: StackFile,
        mother: Mother,
        status: StatusBoard,
        reached: Reached | None = None,
    ) -> Born:
        """Fork a life. Raises OSError, or ForkHazard. `reached`: what workers can reach, if there
        is another way than a fork that copies a held lock."""
        _reap_late()
        began_s = process_time()
        its_trace = os.dup(trace.number)  # that one is closed in every child
        spec = wanted.spec(
            mother.job,
            status,
            by_kernel=mother.by_kernel,
            prepared=True,
            trace=its_trace,
            held=mother.held,
            positions=mother.positions,
        )
        process = _FORK.Process(
            target=_live, args=(spec, channel), name=worker_name(wanted.seat), daemon=True
        )
        try:
            with (
                without_interrupts(),
                threads_at_fork.looking(reached, self._limits.forking) as check,
            ):
                patiently(process.start)
            assert process.pid is not None
            if check is not None and check.unsafe:
                raise threads_at_fork.ForkHazard(check.unsafe, process._identity[-1])
            pidfds = Descriptor(os.pidfd_open(process.pid)), Descriptor(os.pidfd_open(process.pid))
        except BaseException as error:
            if process.pid is not None:
                process.kill()
                process.join(self._limits.starting.reap_s)
            disown(process)
            if isinstance(error, BlockingIOError):
                self._spent_s = self._cpu_s  # the machine gives no more
            raise
        finally:
            os.close(its_trace)
            self._spent_s += process_time() - began_s
        told, own = pidfds
        self._lives[own.number] = wanted, process, own
        self._ended.register(own.number, select.EPOLLIN)
        return Born(wanted.seat, wanted.life, process.pid, told)

    def reap(self) -> list[Exited]:
        """Return how those ended that have ended since the last time. Never waits."""
        return [self._reap(number) for number, _ in self._ended.poll(0)] if self._lives else []

    def _reap(self, number: int) -> Exited:
        wanted, process, pidfd = self._lives.pop(number)
        self._ended.unregister(number)
        pidfd.close()
        assert process.pid is not None
        popen = process._popen  # type: ignore[attr-defined]
        peak_bytes = 0
        with contextlib.suppress(ChildProcessError):  # somebody else took it; he may have noted it
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                popen.returncode = os.waitstatus_to_exitcode(status)
                peak_bytes = 1024 * usage.ru_maxrss
        disown(process)
        return Exited(wanted.seat, wanted.life, popen.returncode, peak_bytes)

    def see_off(self) -> None:
        """Wait, bounded, for those that are about to end, and let go of all. In any thread."""
        give_up = monotonic() + self._limits.starting.reap_s
        while self._lives and (left_s := give_up - monotonic()) > 0:
            for number, _ in self._ended.poll(left_s):
                self._reap(number)
        _late.extend(process.pid for _, process, _ in self._lives.values() if process.pid)
        self.close()
        _reap_late()

    def close(self) -> None:
        """Let go of them; in a child of the user's, too."""
        self._ended.close()
        left = list(self._lives.values())
        self._lives.clear()
        for _, _, pidfd in left:
            pidfd.close()
        disown(*(process for _, process, _ in left))

    def __repr__(self) -> str:
        return f"<FirstWorkers of {len(self._lives)}>"


_late: list[int] = []  # pids of children whose end nobody has waited for; zombies keep their number


def _reap_late() -> None:
    """Take the exit status of lives that ended after all."""
    for pid in _late[:]:
        try:
            ended = os.waitpid(pid, os.WNOHANG) != (0, 0)
        except ChildProcessError:  # somebody else took it
            ended = True
        if ended:
            with contextlib.suppress(ValueError):  # another thread did the same
                _late.remove(pid)


def _live(spec: WorkerSpec, channel: socket.socket) -> None:
    """Be a worker, in a process of its own, forked from the main one."""
    if threads_at_fork.is_void():
        os._exit(0)
    as_torch = is_as_torch(spec.job)
    prepare(forked=True, as_torch=as_torch)
    if not as_torch:
        native_thread_pools.one_blas_thread()
    take_away(spec.held)
    live_one(spec, channel)


def _knows_endings() -> bool:
    """Whether nobody but us takes the exit status of this process's children, as far as is seen:
    a handler of the program's for their ends may well wait for any of them."""
    handler = signal.getsignal(signal.SIGCHLD)
    if not callable(handler):
        return handler is signal.SIG_DFL
    if not str(getattr(handler, "__module__", "")).startswith(_OF_TORCH):
        return False
    # Torch's calls the one that was there before it, if there was one.
    before = [cell.cell_contents for cell in getattr(handler, "__closure__", None) or ()]
    return not any(map(callable, before))


os.register_at_fork(after_in_child=_late.clear)
