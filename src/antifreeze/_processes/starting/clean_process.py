"""The clean process, seen from the main process: a clean process that zygotes are forked from.

One a program, started when a loader first needs it, or will: once, it takes a second to import
torch. It is never waited for. What it does: `clean_process_main`.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import pickle
import secrets
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from multiprocessing import spawn, util

from ..._core.limits import LIMITS
from ..._linux.clock import monotonic
from ..._transport.descriptors import Descriptor, keep_from_children
from ..._transport.stack_file import StackFile
from ..._worker.thread_pool_limits import VARIABLES
from ..replication import module_state
from .clean_process_main import Ended, Warm
from .fd_passing import LARGEST, SourceGone
from .process_creation import without_interrupts
from .zygote_forks import ask_for

_BEGINNING = "ANTIFREEZE_CLEAN_PROCESS"  # in the environment of one, until it is there
# Of all clean processes of this program: sets of strings must have the same order in all of them.
_HASH_SEED = str(secrets.randbelow(2**32))


class CleanProcess:
    """One clean process process."""

    sealed = False  # it holds nothing that its zygotes would have to open

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        keep_from_children(ours)
        try:
            with without_interrupts():  # the new process begins with Ctrl-C blocked
                process = subprocess.Popen(
                    _command(theirs.fileno()),
                    stdin=subprocess.DEVNULL,
                    env=_environment(),
                    pass_fds=[theirs.fileno()],
                    cwd=None if _directory() is not None else "/",
                )
            self.pid = process.pid
            process.returncode = 0  # as far as `subprocess` is concerned: it is ours to bury
            self._pidfd = Descriptor(os.pidfd_open(self.pid))
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        ours.setblocking(False)
        self._sock = ours
        self._rights = rights()
        self._asked_for: set[str] = set()  # libraries
        self._known: module_state.Known = {}
        self._ended: dict[int, Ended] = {}  # zygotes that nobody has asked about
        self._wishes = 0  # to have libraries imported: so many are sent
        self._wishes_known = 0  # so many were granted when it told what it has
        self.given_up = False  # we have ended it ourselves
        self._sending = threading.Lock()  # for as long as the messages of one wish take

    def bring(self, channel: socket.socket, trace: StackFile) -> None:
        """Have a zygote begin at this end of a channel; what it is to hold it is sent there.
        Where it is meanwhile it writes into the trace. Raises SourceGone."""
        with self._sending:
            ask_for(self._sock, channel, trace)

    def known(self) -> module_state.Known:
        """Give what need not be sent to a zygote that is asked for now."""
        with self._sending:
            self._hear()
        return self._known if self._wishes_known == self._wishes else {}

    def how_ended(self, pid: int, within_s: float) -> Ended | None:
        """Say how one of its zygotes ended, if it tells in time."""
        give_up = monotonic() + within_s
        poller = select.poll()
        poller.register(self._sock, select.POLLIN)
        with self._sending:
            while self._hear():
                left_s = give_up - monotonic()
                if pid in self._ended or left_s <= 0 or not poller.poll(1000 * left_s):
                    break
            return self._ended.pop(pid, None)

    def _hear(self) -> bool:
        """Take what it has said. Say whether it may say more."""
        with contextlib.suppress(BlockingIOError):
            while data := self._sock.recv(LARGEST):
                said = pickle.loads(data)
                if isinstance(said, Ended):
                    self._ended[said.pid] = said
                    while len(self._ended) > LIMITS.starting.zygote_ends:
                        del self._ended[next(iter(self._ended))]
                else:
                    self._wishes_known, self._known = said
            return False
        return True

    def warm(self, modules: Sequence[str]) -> None:
        """Have libraries imported that zygotes need, for those to come, if it can be asked."""
        new = [name for name in modules if name not in self._asked_for]
        wish = Warm(tuple(new), dict(os.environb), _directory(), _path())
        if new and self._sending.acquire(blocking=False):
            try:
                socket.send_fds(self._sock, [pickle.dumps(wish)], [])
                self._asked_for.update(new)
                self._wishes += 1
            except OSError:  # gone, or busy: the next zygote imports them again
                pass
            finally:
                self._sending.release()

    @property
    def is_fit(self) -> bool:
        """Say whether it can be asked: it lives, and has no rights that the program gave up."""
        return not (self.given_up or self._is_gone()) and self._rights == rights()

    def kill(self) -> None:
        """End it; its zygotes stay. Takes no lock: it may be called from anywhere."""
        self.given_up = True
        with contextlib.suppress(OSError):  # it was quicker
            signal.pidfd_send_signal(self._pidfd.number, signal.SIGKILL)

    def go_on(self) -> None:
        """Resume it, if somebody has stopped it."""
        with contextlib.suppress(OSError):  # it is gone
            signal.pidfd_send_signal(self._pidfd.number, signal.SIGCONT)

    def end(self) -> None:
        """End it, see it off, and give everything back."""
        self._sock.close()
        self.kill()
        if self._is_gone(LIMITS.starting.reap_s):
            with contextlib.suppress(ChildProcessError):  # somebody else in this program did
                os.waitid(os.P_PIDFD, self._pidfd.number, os.WEXITED | os.WNOHANG)
        self._pidfd.close()

    def __repr__(self) -> str:
        return f"<Clean process pid {self.pid}{', gone' if self._is_gone() else ''}>"

    def _is_gone(self, within_s: float = 0.0) -> bool:
        poller = select.poll()
        poller.register(self._pidfd.number, select.POLLIN)
        return bool(poller.poll(1000 * within_s))


_present: tuple[int, CleanProcess] | None = None  # and whose it is
# Held for as long as it takes to start one, and to bury the one before. It may be taken again: a
# garbage collection meanwhile may close a loader.
_lock = threading.RLock()


def present() -> CleanProcess:
    """Return the clean process of this process; start it if there is none that is fit. Raises
    SourceGone if there is no way to start one."""
    global _present
    with _lock:
        if _present is not None and _present[0] == os.getpid():
            if _present[1].is_fit:
                return _present[1]
            _present[1].end()
        _end_at_exit()
        clean_process = CleanProcess()
        _present = os.getpid(), clean_process
        return clean_process


def is_there() -> bool:
    return _present is not None and _present[0] == os.getpid()


def end() -> None:
    """End the clean process of this process, if any; who needs one later starts another."""
    global _present
    with _lock:
        if is_there():
            assert _present is not None
            _present[1].end()
        _present = None


@functools.cache
def _end_at_exit() -> None:
    atexit.register(end)


def _renew_lock() -> None:
    global _lock
    _lock = threading.RLock()  # in a child, whoever held it is not there


os.register_at_fork(after_in_child=_renew_lock)


def _command(channel: int) -> list[str]:
    """Give the command line of a new interpreter that is like this one."""
    executable = spawn.get_executable()
    # Where the interpreter is the program itself, it would run, and come here again.
    if not executable or getattr(sys, "frozen", False) or _BEGINNING in os.environ:
        raise SourceGone("there is no interpreter that could be started")
    code = (
        "import sys;"
        f"sys.path[:] = {_path()!r};"
        "from antifreeze._processes.starting.clean_process_main import main;"
        f"main({channel}, {os.getpid()})"
    )
    flags = util._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return [os.fsdecode(executable), *flags, "-c", code]


def _environment() -> dict[str, str]:
    """Give what must be set before anything is loaded; zygotes get the program's own later."""
    caps = dict.fromkeys(VARIABLES, "1")  # pools are made when a library is loaded
    return {"PYTHONHASHSEED": _HASH_SEED, **caps, **os.environ, _BEGINNING: "1"}


def _path() -> list[str]:
    """Give `sys.path` for a process in another directory. (What is not a string, import skips.)"""
    strings = [path for path in sys.path if isinstance(path, str)]
    return [path for path in (path or _directory() for path in strings) if path is not None]


def _directory() -> str | None:
    with contextlib.suppress(OSError):  # it is gone
        return os.getcwd()
    return None


def rights() -> tuple[object, ...]:
    """Return what this process may do: a process that was started before has kept it."""
    return os.getresuid(), os.getresgid(), sorted(os.getgroups())
