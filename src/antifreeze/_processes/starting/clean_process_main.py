"""What the clean process does: it has imported what takes long, and forks zygotes when asked.

1. It has one thread, and never touches what it is sent: a zygote opens it, when it is forked.
2. It imports libraries only, never the program's own modules: those that a zygote had to import.
3. It ends with the main process, whose end it watches. Its zygotes do the same, and do not need
   it any more once they are there.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import os
import pickle
import resource
import select
import signal
import socket
import sys
import traceback
from dataclasses import replace
from typing import NoReturn

from ..._core.frozen_values import frozen
from ..._linux.clock import process_time
from ..._linux.live_processes import threads
from ..._loading.job import Job
from ..._transport.descriptors import Descriptor
from ..._worker import parent_watch, signal_handlers
from ..._worker.main import told_of
from ..._worker.private_file_offsets import NOTHING, Held
from ..._worker.thread_pool_limits import cap_pools
from ..process_activity import is_ours
from ..replication import module_state
from ..replication.process_settings import ProcessSettings, apply_environment
from ..replication.shared_payload import Unpacking
from ..replication.user_code import is_of_library
from .fd_passing import receive, receive_many
from .inherited_handles import held_by
from .zygote_forks import Bring, bring, say
from .zygote_main import Mother, Terms, Unfit, Warmed, live

LOW = 64  # descriptors; few programs have as many open before their loaders begin
LISTED = 400  # modules that a zygote tells to have imported: as many as a message takes


@frozen
class Ended:
    """A zygote has ended: an exit code, or the negative number of a signal."""

    pid: int
    code: int
    peak_bytes: int


@frozen
class Warm:
    """Wanted: these libraries, imported for the zygotes to come, as the program would now."""

    modules: tuple[str, ...]
    environment: dict[bytes, bytes]
    directory: str | None
    path: list[str]

    def grant(self) -> None:
        apply_environment(self.environment)
        with contextlib.suppress(OSError):
            os.chdir(self.directory or "/")
        sys.path[:] = self.path
        for name in self.modules:
            # Whatever it raises, and prints: it is an import that was not asked for.
            with contextlib.suppress(BaseException):
                importlib.import_module(name)
        gc.freeze()


def main(control: int, main_pid: int) -> None:
    """Be the clean process of a program until it ends. Called first in a new process."""
    try:
        parent_watch.name_process("af_clean")
        os.environ.pop("ANTIFREEZE_CLEAN_PROCESS", None)
        control = _leave_low_numbers(control)
        signal_handlers.leave_to_main()
        parent_watch.unblock_interrupts()
        watched = parent_watch.watch_parent(main_pid, by_kernel=False)
        with contextlib.suppress(ImportError):
            import numpy  # noqa: F401 - torch's tensors need it, and samples
        cap_pools(forked=False)
        gc.freeze()
        _serve(socket.socket(fileno=control), watched)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _leave_low_numbers(control: int) -> int:
    """Have no descriptor of ours, nor of zygotes and workers, below a number; give the new one.

    A dataset may hold the number of a descriptor that it opened in the main process. It means
    nothing here: whoever reads it must be told so, and not get what is there by chance.
    """
    if not _has_room():
        return control
    moved = fcntl.fcntl(control, fcntl.F_DUPFD_CLOEXEC, LOW)
    os.close(control)
    nothing = os.open(os.devnull, os.O_PATH | os.O_CLOEXEC)  # what reads it gets EBADF
    for number in range(3, LOW):
        try:
            os.fstat(number)
        except OSError:
            os.dup2(nothing, number, inheritable=False)
            _left_out.append(number)
    return moved


_left_out: list[int] = []  # low numbers, which nothing has


def _has_room() -> bool:
    """Whether this process may have so many descriptors that it can do without the low numbers."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most == resource.RLIM_INFINITY or most >= 4 * LOW


def _use_low_numbers() -> None:
    """Have descriptors at low numbers after all: the program may have few."""
    while _left_out:
        os.close(_left_out.pop())


def _serve(control: socket.socket, main: Descriptor) -> None:
    control.settimeout(None)
    children = _watch_children()
    poller = select.poll()
    for each in (control.fileno(), main.number, children):
        poller.register(each, select.POLLIN)
    granted = 0
    _tell(control, granted)
    while True:  # bounded by the life of the main process
        for fd, _ in poller.poll():
            if fd == main.number:
                return
            if fd == children:
                _bury(children, control)
                continue
            data, descriptors = receive(control)
            if not data:
                return
            wish = pickle.loads(data)
            if isinstance(wish, Warm):
                wish.grant()
                granted += 1
                _tell(control, granted)
                continue
            assert isinstance(wish, Bring)
            bring(wish, descriptors, control, main, _become_zygote)


def _tell(control: socket.socket, granted: int) -> None:
    """Tell the main process what it need not send, from so many granted wishes on."""
    told = pickle.dumps((granted, module_state.digests()))
    with contextlib.suppress(OSError):  # it does not listen, or it is too much: it sends it all
        control.send(told, socket.MSG_DONTWAIT)


def _watch_children() -> int:
    """Give a descriptor that tells when a child has ended."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    return reader


def _bury(children: int, control: socket.socket) -> None:
    with contextlib.suppress(OSError):
        os.read(children, 4096)
    with contextlib.suppress(ChildProcessError):
        while (found := os.wait4(-1, os.WNOHANG))[0]:
            pid, status, usage = found
            ended = Ended(pid, os.waitstatus_to_exitcode(status), 1024 * usage.ru_maxrss)
            with contextlib.suppress(OSError):  # nobody wants to know
                control.send(pickle.dumps(ended), socket.MSG_DONTWAIT)


def _become_zygote(wish: Bring, control: socket.socket, main: Descriptor) -> NoReturn:
    terms: Terms = Unpacking(*receive_many(control)).next()
    unpacking = Unpacking(*receive_many(control))
    before, began = set(sys.modules), process_time()
    try:
        mother = _open(wish, unpacking, main, terms)
    except BaseException as error:
        say(control, Unfit(*told_of(error)))
        os._exit(1)
    say(control, Warmed(_new_libraries(before), process_time() - began))
    parent_watch.outlive_parent()  # it watches the program itself, from here on
    live(mother, control)


is_opening = False  # a zygote, or a life, imports what it needs of the program


class _SealedJob:
    """A job that was sent. Opened once a process."""

    def __init__(self, unpacking: Unpacking, circumstances: ProcessSettings, terms: Terms) -> None:
        self._unpacking, self._circumstances, self.terms = unpacking, circumstances, terms
        self.took: tuple[tuple[str, ...], float] = (), 0.0

    @property
    def look_s(self) -> float:
        return self.terms.look_s

    def open(self) -> tuple[Job, Held]:
        global is_opening
        is_opening = True
        before, began = set(sys.modules), process_time()
        job = self._unpacking.next()
        self._unpacking.install_code()
        self._circumstances.settle()
        is_opening = False
        self.took = _new_libraries(before), process_time() - began
        held = held_by(job)
        if self._unpacking.each_opens:  # what it has opened itself is its own
            sent = [each for each in held.taken if self._unpacking.brought(each[0])]
            held = replace(held, taken=tuple(sent))
        return self.terms.complete(job), held


def _open(wish: Bring, unpacking: Unpacking, main: Descriptor, terms: Terms) -> Mother:
    global is_opening
    is_opening = True
    circumstances = unpacking.next()
    assert isinstance(circumstances, ProcessSettings)
    circumstances.apply()
    if not _has_room():
        _use_low_numbers()
    sealed = _SealedJob(unpacking, circumstances, terms)
    job, held = (sealed, NOTHING) if unpacking.each_opens else sealed.open()
    is_opening = False
    return Mother(
        job=job,
        status=terms.status,
        main_pid=wish.main_pid,
        main=main,
        forked=False,
        by_kernel=False,
        positions={},
        held=held,
        handled=terms.handled,
        clean_since=terms.why,
    )


def _new_libraries(before: set[str]) -> tuple[str, ...]:
    """Give what the clean process may import as well: it must keep its one thread."""
    if sum(not is_ours(os.getpid(), task) for task in threads(os.getpid())) > 1:
        return ()
    new = [name for name in sys.modules if name not in before]
    return tuple([name for name in new if is_of_library(name)][:LISTED])
