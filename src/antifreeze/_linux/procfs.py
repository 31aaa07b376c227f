"""The tables of /proc, parsed. Pure: text in, plain data out.

A process chooses some of what the kernel writes there: its name, the names of the files that it
maps and mounts, of the sockets that it binds. So each line must look, as a whole, as the kernel
writes it, or it is passed over; and nothing here raises, whatever the text.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass

from .bounded_reads import complete_lines

_LONGEST_NUMBER = 20  # digits: what 64 bits can hold
_MAPPING = re.compile(
    r"([0-9a-f]{1,16})-([0-9a-f]{1,16}) [-rwxsp]{4} ([0-9a-f]{1,16}) [0-9a-f]+:[0-9a-f]+ (\d{1,20})"
    r"(?: +(.*))?",
    re.ASCII | re.DOTALL,
)
_UNIX = re.compile(
    r"[0-9a-f]{8,16}: [0-9A-F]{8} [0-9A-F]{8} [0-9A-F]{8} [0-9A-F]{4} [0-9A-F]{2} +(\d{1,20})"
    r"(?: (.*))?",
    re.ASCII | re.DOTALL,
)
_INTERNET = re.compile(
    r" *\d+: ((?:[0-9A-F]{8}|[0-9A-F]{32}):[0-9A-F]{4}) ((?:[0-9A-F]{8}|[0-9A-F]{32}):[0-9A-F]{4})"
    r" ([0-9A-F]{2}) \S+ \S+ \S+ +\d+ +\d+ (\d{1,20}) .*",
    re.ASCII | re.DOTALL,
)
_LOCK = re.compile(
    r"(\d+): *(-> )?(\w+) +\w+ +\w+ +(-?\d{1,10}) [0-9a-f]+:[0-9a-f]+:(\d{1,20})"
    r" (\d{1,20}) (?:\d+|EOF)",
    re.ASCII,
)
_STATES = {"01": "", "02": " (connecting)", "06": " (closed)", "08": " (closed by the peer)"}
_LISTENS = "0A"
_OCTAL = re.compile(r"\\([0-7]{3})")


def whole(text: str, otherwise: int = 0) -> int:
    """Return a decimal number without a sign; `otherwise` for any other text."""
    text = text.strip()
    fits = text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER
    return int(text) if fits else otherwise


def hexadecimal(text: str) -> int:
    """Return a hexadecimal number; 0 for any other text."""
    try:
        return int(text, 16) if len(text) <= _LONGEST_NUMBER and text.isascii() else 0
    except ValueError:
        return 0


@dataclass(frozen=True, slots=True)
class Stat:
    """What `stat` says of a process or a thread; times are in ticks."""

    state: str
    parent: int
    group: int
    major_faults: int
    cpu: int
    nice: int
    started: int
    on_cpu: int  # which one it last ran on
    waited_for_disk: int
    exit_status: int


def state(text: str) -> str:
    """Return the letter that a `stat` file has for what a process or a thread does; "?" if it has
    none. The name in it may hold anything."""
    fields = text.rpartition(") ")[2].split()
    return fields[0] if fields and len(fields[0]) == 1 else "?"


def stat(text: str) -> Stat | None:
    """Parse a `stat` file; None if it is none. The name in it may hold anything."""
    fields = text.rpartition(") ")[2].split()
    if len(fields) < 50 or len(fields[0]) != 1:
        return None
    numbers = [_signed(each) for each in fields[1:]]
    return Stat(
        state=fields[0],
        parent=numbers[0],
        group=numbers[1],
        major_faults=numbers[8],
        cpu=numbers[10] + numbers[11],
        nice=numbers[15],
        started=numbers[18],
        on_cpu=numbers[35],
        waited_for_disk=numbers[38],
        exit_status=numbers[48],
    )


def table(text: str) -> dict[str, str]:
    """Parse lines of `name: value`, as of `status`, `io`, `fdinfo`. The first of a name counts."""
    found: dict[str, str] = {}
    for line in text.split("\n"):
        name, colon, value = line.partition(":")
        if colon:
            found.setdefault(name, value.strip())
    return found


def quantity(found: dict[str, str], name: str) -> int:
    """Return the number that a value begins with; 0 if there is none."""
    first = found.get(name, "").split()
    return whole(first[0]) if first else 0


def counters(text: str) -> dict[str, int]:
    """Parse lines of `name number`, as of `meminfo`, `vmstat`, `cpu.stat` and `memory.events`."""
    found: dict[str, int] = {}
    for line in text.split("\n"):
        parts = line.replace(":", " ").split()
        if len(parts) >= 2 and (number := whole(parts[1], -1)) >= 0:
            found.setdefault(parts[0], number)
    return found


@dataclass(frozen=True, slots=True)
class Mapping:
    """A file that a process has mapped."""

    low: int
    high: int
    offset: int
    inode: str
    path: str


def mapped_files(text: str) -> list[Mapping]:
    """Parse a `maps` file; memory that is of no file is left out."""
    found = []
    for line in complete_lines(text):
        match = _MAPPING.fullmatch(line)
        if match is not None and (match[5] or "").startswith("/"):
            low, high, offset = (hexadecimal(match[at]) for at in (1, 2, 3))
            found.append(Mapping(low, high, offset, match[4], match[5].strip()))
    return found


def unix_sockets(text: str) -> dict[str, str]:
    """Parse `net/unix`: a name for each inode. Anybody may bind a name with line ends in it, and so
    write lines of this table: an inode that has two names has none."""
    found: dict[str, str] = {}
    for line in complete_lines(text):
        match = _UNIX.fullmatch(line)
        if match is None:
            continue
        name = f"unix {match[2] or ''}".strip()
        found[match[1]] = name if found.get(match[1], name) == name else "unix"
    return found


def internet_sockets(kind: str, text: str) -> dict[str, str]:
    """Parse `net/tcp` and its like: both ends for each inode."""
    found = {}
    for line in complete_lines(text):
        match = _INTERNET.fullmatch(line)
        if match is None:
            continue
        here = f"{kind[:3]} {address(match[1])}"
        if match[3] == _LISTENS:
            found[match[4]] = f"{here} (listening)"
        else:
            found[match[4]] = f"{here} -> {address(match[2])}{_STATES.get(match[3], '')}"
    return found


@dataclass(frozen=True, slots=True)
class LockLine:
    """A lock on a file, or somebody who waits for the lock of the same number."""

    number: str
    waits: bool
    kind: str  # FLOCK, POSIX, OFDLCK
    pid: int  # -1 or 0: not known
    inode: str
    first: int  # of its bytes


def file_locks(text: str) -> Iterator[LockLine]:
    """Parse /proc/locks."""
    for line in complete_lines(text):
        match = _LOCK.fullmatch(line.rstrip())
        if match is not None:
            yield LockLine(
                match[1], bool(match[2]), match[3], _signed(match[4]), match[5], whole(match[6])
            )


def mounts(text: str) -> list[tuple[str, str]]:
    """Parse `mounts`: folder and kind of each file system."""
    found = []
    for line in complete_lines(text):
        fields = line.split(" ")
        if len(fields) == 6:
            folder = _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[1])
            found.append((folder, fields[2]))
    return found


def control_groups(text: str) -> list[tuple[list[str], str]]:
    """Parse `cgroup`: controllers and path of each group; no controllers: version 2."""
    found = []
    for line in complete_lines(text):
        number, *rest = line.split(":", 2)
        if len(rest) == 2 and whole(number, -1) >= 0 and rest[1].startswith("/"):
            found.append((rest[0].split(",") if rest[0] else [], rest[1]))
    return found


def strings(text: str) -> list[str]:
    """Parse `cmdline` and `environ`: texts that each end with a NUL."""
    return text.rstrip("\0").split("\0")


def _signed(text: str) -> int:
    return -whole(text[1:]) if text.startswith("-") else whole(text)


def address(text: str) -> str:
    """Return host and port of one end of a connection, as the kernel writes it."""
    host, _, port = text.partition(":")
    words = [bytes.fromhex(host[at : at + 8])[::-1] for at in range(0, len(host), 8)]
    address = ipaddress.ip_address(b"".join(words))
    mapped = getattr(address, "ipv4_mapped", None)
    shown = mapped or address
    return f"[{shown}]:{int(port, 16)}" if shown.version == 6 else f"{shown}:{int(port, 16)}"
