"""What touches the file systems of a program is done in a process that can be left behind.

A folder on a server that is gone (NFS, s3fs, a FUSE daemon that hangs) may never answer. Whoever
asks then waits in the kernel and cannot be ended, not even by SIGKILL; a process with such a thread
cannot exit. And source of others may take the parser as long as it likes. So a child does it: if it
gives no answer in time it is killed, or else left behind, and nothing is known.

The child is this interpreter without site-packages, with this package and nothing else.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .bounded_subprocess import run_bounded

MOST_BYTES = 1 << 20  # of an answer
_PACKAGES = str(Path(__file__).resolve().parents[4])
_CODE = """
import sys
sys.path.insert(0, sys.argv[1])
from {} import {} as task
from {} import serve
serve(task)
"""


def run_isolated(task: Callable[[Any], Any], given: Any, wait_s: float) -> Any:
    """Return what a function of a module of ours returns, called in another process; None if it
    gives no answer in time. Question and answer are JSON."""
    code = _CODE.format(task.__module__, task.__name__, __name__)
    command = [sys.executable, "-I", "-S", "-c", code, _PACKAGES]
    question = os.memfd_create("antifreeze-question", os.MFD_CLOEXEC)
    with os.fdopen(question, "r+b") as stream:
        stream.write(json.dumps(given).encode())
        stream.flush()
        stream.seek(0)
        try:
            done = run_bounded(command, wait_s, MOST_BYTES, stream)
            return json.loads(done.output) if done.code == 0 else None
        except (OSError, ValueError, RecursionError):
            return None


def serve(task: Callable[[Any], Any]) -> None:
    """In that process: answer the question."""
    json.dump(task(json.load(sys.stdin)), sys.stdout)
