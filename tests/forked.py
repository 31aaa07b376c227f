"""Run code in a fork of the process of the tests, where torch is there: importing it takes long."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable

from .patience import PATIENCE_S


def run_forked(program: Callable[[], int | None]) -> subprocess.CompletedProcess[str]:
    """Run a program, with `antifreeze` not imported yet, as far as it can see."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        sys.stdout.flush(), sys.stderr.flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # that there may be threads
            process = os.fork()
        if process == 0:
            os.dup2(out.fileno(), 1), os.dup2(err.fileno(), 2)
            _live(program)
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        out.seek(0), err.seek(0)
        return subprocess.CompletedProcess(program, code, out.read(), err.read())


def _live(program: Callable[[], int | None]) -> None:
    code = 70
    try:
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", closefd=False)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(int(PATIENCE_S))
        warnings.resetwarnings()
        for name in [each for each in sys.modules if each.partition(".")[0] == "antifreeze"]:
            del sys.modules[name]
        code = program() or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(code)
