"""The processes of a program that a test runs, known by a mark in their environment."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import uuid

import psutil

from .forked_programs import ForkedProgram
from .patience import PATIENCE_S

MARK = "PROGRAM_OF_A_TEST"
ROUNDS = 5  # of ending what is left
SETTLE_S = 5.0  # for processes that have been told to end


def new_mark() -> dict[str, str]:
    """Give a mark, for the environment of a program that is about to be started."""
    return {MARK: uuid.uuid4().hex}


def settled(mark: dict[str, str], session: int = 0) -> tuple[str, ...]:
    """Give what is still alive of a program that has ended, after a moment."""
    give_up = time.monotonic() + SETTLE_S
    while (alive := members(mark, session)) and time.monotonic() < give_up:
        time.sleep(0.1)
    return tuple(str(each) for each in alive)


def members(mark: dict[str, str], session: int = 0) -> list[psutil.Process]:
    """Give the processes that bear a mark, or are of a session, but those that are dead."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            ours = session and os.getsid(process.pid) == session
            if ours or process.environ().get(MARK) == mark[MARK]:
                found.append(process)
        except (psutil.Error, ProcessLookupError):
            continue  # it has ended meanwhile, or is none of ours
    return found


def end(process: subprocess.Popen[bytes] | ForkedProgram, mark: dict[str, str]) -> None:
    """Kill what is left of a program: who starts others first, and those that it had just started
    while the others were looked for."""
    if process.poll() is None:
        process.kill()
    for _ in range(ROUNDS):
        if not (left := members(mark, process.pid)):
            break
        for member in left:
            try:
                member.send_signal(signal.SIGKILL)
            except psutil.Error:
                continue
    process.wait(timeout=PATIENCE_S)
