"""Where a program with our loader answers who asks from outside, and how to ask it."""

from __future__ import annotations

import errno
import json
import os
import socket
import struct
from typing import Any

from ._clock import monotonic

MOST_BYTES = 1 << 20  # of an answer
WAIT_S = 2.5  # for one; whoever answers does so once a second


def address(pid: int) -> str:
    """Give the name of its socket: one without a file, which goes with the process."""
    return f"\0antifreeze-{pid}"


def ask(pid: int, wait_s: float = WAIT_S) -> dict[str, Any] | None:
    """Ask a program how its loaders are. None: nobody is there to answer; with an "error": somebody
    is, and does not."""
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with line:
        line.settimeout(wait_s)
        try:
            line.connect(address(pid))
        except OSError as error:
            if error.errno == errno.EAGAIN:  # others wait there already
                return {"error": "its loader does not answer those who asked before"}
            return None
        if not _is_of(line, pid):
            return None  # somebody else has taken the name
        try:
            return _read(line, monotonic() + wait_s)
        except TimeoutError:
            return {"error": f"its loader gave no answer for {wait_s:g} s"}
        except (OSError, ValueError):
            return {"error": "its loader's answer cannot be read"}


def _is_of(line: socket.socket, pid: int) -> bool:
    """Say whether the one at the other end is of the user whose process it is, or root."""
    said = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, user, _ = struct.unpack("3i", said)
    try:
        return user in (os.stat(f"/proc/{pid}").st_uid, 0)
    except OSError:
        return False


def _read(line: socket.socket, until: float) -> dict[str, Any]:
    text = b""
    while len(text) < MOST_BYTES:
        line.settimeout(max(0.001, until - monotonic()))
        if not (part := line.recv(1 << 16)):
            break
        text += part
    said = json.loads(text or b"null")
    if not isinstance(said, dict):
        raise ValueError("not an object")
    return said
