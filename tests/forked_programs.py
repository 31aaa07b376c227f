"""Programs of their own that begin where torch is imported already: importing it takes a second.

1. A process that has imported torch, and nothing of ours, forks for every program: a script that it
   runs as Python does, as `__main__`, in a session of its own, to the end of the interpreter.
2. It has no other thread, and does nothing else. It is started at the first program, and ends with
   the process of the tests.
3. Whoever needs another environment from the beginning (`LD_PRELOAD`, settings of the C library or
   of torch, a mark to be found by in /proc) starts a program with `subprocess`.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

from .patience import PATIENCE_S

ROOM = 1 << 20  # bytes, of what is asked for
NUMBER = 11  # bytes: a program's pid, and later its exit code, one after the other in a pipe
TO_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
ROOT = str(Path(__file__).parent.parent)
# `exec` runs a script where its fork has come to, with the names of `__main__`.
BEGINS = """
import gc, sys, torch
gc.freeze()
sys.path.insert(1, sys.argv[2])
from tests.forked_programs import serve
exec(serve(int(sys.argv[1]), globals()))
"""

# ---- in the process of the tests -----------------------------------------------------------------


class ForkedProgram:
    """A program, with what tests use of `subprocess.Popen`.

    What it says is read from its pipes; `into`: a folder with files `out` and `err` for it instead.
    """

    def __init__(
        self,
        script: Path,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        into: Path | None = None,
    ) -> None:
        self.args = [sys.executable, str(script), *arguments]
        self.returncode: int | None = None
        self.stdout = self.stderr = None
        if into is None:
            out, its_out = os.pipe()
            err, its_err = os.pipe()
            self.stdout, self.stderr = open(out), open(err)  # noqa: SIM115
        else:
            its_out, its_err = (os.open(into / name, TO_WRITE, 0o644) for name in ("out", "err"))
        self._told, its_end = os.pipe()
        request = json.dumps([self.args[1:], dict(env or os.environ), str(cwd or os.getcwd())])
        given = [its_out, its_err, its_end]
        try:
            socket.send_fds(_origin().channel, [request.encode()], given)
        except BrokenPipeError:  # a test has just ended it, with all children of its process
            _there.clear()
            socket.send_fds(_origin().channel, [request.encode()], given)
        for each in given:
            os.close(each)
        self.pid = int(os.read(self._told, NUMBER))

    def poll(self) -> int | None:
        """Return how it ended, as Popen does; None if it lives."""
        self._has_ended(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if not self._has_ended(timeout):
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        assert self.returncode is not None
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Read all that it says, to its end."""
        said = {"out": "", "err": ""}
        files = {"out": self.stdout, "err": self.stderr}
        files = {name: file for name, file in files.items() if file and not file.closed}

        def read(name: str, file: Any) -> None:
            said[name] = file.read()

        readers = [threading.Thread(target=read, args=each, daemon=True) for each in files.items()]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(timeout)
            if reader.is_alive():
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        self.wait(timeout)
        for file in files.values():
            file.close()
        return said["out"], said["err"]

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _has_ended(self, timeout: float | None) -> bool:
        if self.returncode is not None:
            return True
        with selectors.DefaultSelector() as selector:
            selector.register(self._told, selectors.EVENT_READ)
            if not selector.select(timeout):
                return False
        self.returncode = int(os.read(self._told, NUMBER))
        os.close(self._told)
        return True


def run_script(
    script: Path,
    *arguments: str,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a script to its end, as `subprocess.run` does."""
    process = ForkedProgram(script, *arguments, env=env, cwd=cwd)
    try:
        out, err = process.communicate(PATIENCE_S)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(process.args, process.wait(), out, err)


class Origin:
    """The process that programs are forks of, seen from that of the tests."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.channel, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            command = [sys.executable, "-c", BEGINS, str(its.fileno()), ROOT]
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, pass_fds=[its.fileno()]
            )
        atexit.register(self.end)

    def end(self) -> None:
        if os.getpid() == self.owner:
            self.process.kill()
            self.process.wait()


_there: list[Origin] = []


def _origin() -> Origin:
    if not _there or _there[0].owner != os.getpid() or _there[0].process.poll() is not None:
        _there[:] = [Origin()]
    return _there[0]


def origin_pid() -> int | None:
    """Return the process that programs are forks of, if there is one."""
    return _there[0].process.pid if _there else None


# ---- in the process that programs are forks of ---------------------------------------------------


def serve(channel_number: int, main: dict[str, Any]) -> CodeType:
    """Fork whenever a program is asked for; return in the fork, with the code of its script."""
    channel = socket.socket(fileno=channel_number)
    living: dict[int, tuple[int, int]] = {}  # by descriptor: the program, and where its end is told
    with selectors.DefaultSelector() as selector:
        selector.register(channel, selectors.EVENT_READ)
        while True:
            seen = {key.fd for key, _ in selector.select()}
            for ended in seen & living.keys():
                selector.unregister(ended)
                os.close(ended)
                _tell_end(*living.pop(ended))
            if channel_number not in seen:
                continue
            request, given, *_ = socket.recv_fds(channel, ROOM, 3)
            if not request:
                os._exit(0)  # the tests are over
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # of libraries' threads
                pid = os.fork()
            if pid == 0:
                break
            os.write(given[2], b"%*d" % (NUMBER, pid))
            os.close(given[0]), os.close(given[1])
            number = os.pidfd_open(pid)
            living[number] = (pid, given[2])
            selector.register(number, selectors.EVENT_READ)
    channel.detach()
    return _become(main, given, *json.loads(request))


def _tell_end(pid: int, told: int) -> None:
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with contextlib.suppress(BrokenPipeError):  # the test is over
        os.write(told, b"%*d" % (NUMBER, code))
    os.close(told)


def _become(
    main: dict[str, Any],
    given: list[int],
    arguments: list[str],
    environment: dict[str, str],
    folder: str,
) -> CodeType:
    """Be the program: with its session, output, environment and folder, and nothing of ours."""
    os.setsid()
    os.dup2(given[0], 1), os.dup2(given[1], 2)
    os.closerange(3, 1 << 16)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv[:] = arguments
    sys.orig_argv[:] = [sys.executable, *arguments]
    script = arguments[0]
    sys.path[:2] = [os.path.dirname(script)]
    sys.excepthook = _show_without_us
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]
    for name in [name for name in main if not name.startswith("__")]:
        del main[name]
    main["__file__"] = script
    main["__loader__"] = SourceFileLoader("__main__", script)
    return compile(Path(script).read_text(), script, "exec", dont_inherit=True)


def _show_without_us(kind: Any, error: Any, trace: Any) -> None:
    """Show a traceback without its first place, where programs begin."""
    shown = error.with_traceback(trace and trace.tb_next)
    sys.__excepthook__(kind, shown, shown.__traceback__)
