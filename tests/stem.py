"""Run scripts in forks of a process that has imported torch and nothing else.

Importing torch takes most of the time of a small program, and there are hundreds of those. A test
whose subject is not how a program starts, nor how Python takes it down, runs its script here:

1. The script is `__main__`, in a process of its own, with its folder, environment and streams.
2. At its end it waits for its threads and does what was registered with `atexit`; then it is gone,
   without taking down torch's modules.
3. The stem has no thread, and none of pytest's handlers, filters and modules. It is started when
   first needed, and ends with the process of the tests.

What torch reads from the environment when it is imported is that of the tests.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ENDED_BY_ERROR = 1


class Forked:
    """A program that runs, as far as its users need `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = _asked({"poll": self.pid})
        return self.returncode

    def wait(self, timeout: float) -> int:
        give_up = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > give_up:
                raise subprocess.TimeoutExpired("a script", timeout)
            time.sleep(0.01)
        return code

    def kill(self) -> None:
        _asked({"kill": self.pid})


@dataclass(frozen=True, slots=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def start(
    script: Path, out: Path, err: Path, *, folder: Path, environment: Mapping[str, str]
) -> Forked:
    """Start a script as the leader of a session; `environment`: all of it."""
    out.touch(), err.touch()
    wanted = {"out": str(out), "err": str(err), "folder": str(folder)}
    return Forked(_asked({"script": str(script), "environment": dict(environment), **wanted}))


def run(script: Path, *, folder: Path, timeout: float, **more: str) -> Done:
    """Run a script to its end; `more`: environment beside that of the tests."""
    out, err = script.with_suffix(".out"), script.with_suffix(".err")
    forked = start(script, out, err, folder=folder, environment={**os.environ, **more})
    try:
        code = forked.wait(timeout)
    finally:
        if forked.poll() is None:
            forked.kill()
            forked.wait(timeout)
    return Done(code, out.read_text(), err.read_text())


# ---- in the process of the tests -----------------------------------------------------------------

_lock = threading.Lock()
_stem: subprocess.Popen[str] | None = None


def pid() -> int | None:
    return _stem.pid if _stem is not None else None


def _asked(question: dict[str, Any]) -> Any:
    global _stem
    with _lock:
        if _stem is None:
            command = [sys.executable, __file__]
            _stem = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            atexit.register(_stem.communicate)  # which ends it
        assert _stem.stdin is not None and _stem.stdout is not None
        _stem.stdin.write(json.dumps(question) + "\n")
        _stem.stdin.flush()
        return json.loads(_stem.stdout.readline())


# ---- in the stem ---------------------------------------------------------------------------------


def serve() -> None:
    """Answer until the process of the tests is gone; be nobody's parent after that."""
    import torch.utils.data.dataloader  # noqa: F401

    children: set[int] = set()
    answers = os.fdopen(os.dup(1), "w")
    while question := sys.stdin.buffer.raw.readline():
        asked = json.loads(question)
        answer = None
        if "script" in asked:
            if (answer := os.fork()) == 0:
                answers.close()
                _live(**asked)
            children.add(answer)
        elif (child := asked.get("kill")) in children:
            os.kill(child, signal.SIGKILL)
        elif (child := asked.get("poll")) in children:
            gone, status = os.waitpid(child, os.WNOHANG)
            if gone:
                children.remove(child)
                answer = os.waitstatus_to_exitcode(status)
        print(json.dumps(answer), file=answers, flush=True)


def _live(script: str, out: str, err: str, folder: str, environment: dict[str, str]) -> None:
    """Be the program."""
    import traceback
    from types import ModuleType

    code = 0
    try:
        os.setsid()
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        for number, path in enumerate((os.devnull, out, err)):
            file = os.open(path, flags if number else os.O_RDONLY)
            os.dup2(file, number)
            os.close(file)
        sys.stdin = os.fdopen(0, closefd=False)
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)
        sys.argv, sys.path[0] = [script], str(Path(script).parent)
        main = ModuleType("__main__")
        main.__file__ = script
        sys.modules["__main__"] = main
        exec(compile(Path(script).read_text(), script, "exec"), vars(main))
    except SystemExit as error:
        if error.code is not None and not isinstance(error.code, int):
            print(error.code, file=sys.stderr)
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException as error:
        code = ENDED_BY_ERROR
        place = error.__traceback__.tb_next if error.__traceback__ else None
        sys.excepthook(type(error), error.with_traceback(place), place)
    try:
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush(), sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
    os._exit(code & 0xFF)


if __name__ == "__main__":
    serve()
