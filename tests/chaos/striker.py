"""A program beside the loop that ends and stops its processes. Only the standard library.

It finds its victims itself, at the moment it strikes: workers are children of a zygote or of the
program, a zygote is a child of the program or of the clean process. So it strikes whoever is there,
also while processes are made or taken down. Reads orders from stdin, a line of JSON each, and
answers so.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import os
import select
import signal
import struct
import sys
import time
from pathlib import Path
from typing import Any

BOARD = struct.Struct("<qd")
SIGNALS = {"kill": signal.SIGKILL, "segv": signal.SIGSEGV, "stop": signal.SIGSTOP}


def children(parents: set[int]) -> list[int]:
    """List the living children of some processes."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if fields[0] not in "ZX" and int(fields[1]) in parents:
                found.append(int(entry.name))
    return sorted(found)


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return ""


def family(program: int) -> dict[str, list[int]]:
    """Tell the processes of a program apart."""
    mine = command(program)
    own = children({program})
    clean_processes = [pid for pid in own if "clean_process_process" in command(pid)]
    forked = [pid for pid in own if command(pid) == mine]
    first = [pid for pid in forked if name(pid).startswith("af_worker")]
    zygotes = [pid for pid in forked if pid not in first] + children(set(clean_processes))
    return {
        "clean process": clean_processes,
        "zygote": zygotes,
        "worker": first + children(set(zygotes)),
    }


def strike(order: dict[str, Any]) -> dict[str, Any]:
    """Do it; say whom it hit, and at which samples they were."""
    found = family(order["program"])
    whom = order["whom"]
    there = found["worker" if whom == "workers" else whom]
    victims = there
    if there and whom != "workers":
        victims = [there[order["which"] % len(there)]]
    number = SIGNALS.get(order["how"], signal.SIGSTOP)
    at = time.monotonic()
    for pid in victims:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    hurt = victims if whom.startswith("worker") else children(set(victims))
    if whom == "clean process":
        hurt = []  # its zygotes go on
    boards = [board(order["folder"], pid) for pid in hurt]
    return {"at": at, "victims": victims, "boards": [each for each in boards if each]}


def board(folder: str, pid: int) -> tuple[int, float] | None:
    try:
        return BOARD.unpack((Path(folder) / f"board-{pid}").read_bytes())
    except (OSError, struct.error):
        return None


def say(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main() -> None:
    due: list[tuple[float, int, dict[str, Any]]] = []
    count = 0
    buffer = b""
    while True:  # bounded by the end of stdin
        wait_s = max(0.0, due[0][0] - time.monotonic()) if due else None
        if select.select([0], [], [], wait_s)[0]:
            data = os.read(0, 65536)
            if not data:
                break
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                order = json.loads(line)
                if order["order"] == "sync":  # what has not been done yet is not done any more
                    resume([each for _, _, each in due])
                    due.clear()
                    say({"synced": order["number"]})
                else:
                    count += 1
                    heapq.heappush(due, (time.monotonic() + order["after_s"], count, order))
        while due and due[0][0] <= time.monotonic():
            _, _, order = heapq.heappop(due)
            if order["order"] == "resume":
                resume([order])
                continue
            done = strike(order)
            say(done | {"id": order["id"]})
            if order["how"] == "pause" and done["victims"]:
                count += 1
                later = {"order": "resume", "pids": done["victims"]}
                heapq.heappush(due, (time.monotonic() + order["pause_s"], count, later))
    resume([each for _, _, each in due])


def resume(orders: list[dict[str, Any]]) -> None:
    for order in orders:
        for pid in order.get("pids", ()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGCONT)


if __name__ == "__main__":
    main()
