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
from typing import NamedTuple

_LONGEST_NUMBER = 20  # digits: what 64 bits can hold
_MAPPING = re.compile(
    r"([0-9a-f]{1,16})-([0-9a-f]{1,16}) ([-rwxsp]{4}) ([0-9a-f]{1,16}) ([0-9a-f]+:[0-9a-f]+)"
    r" (\d{1,20})(?: +(.*))?",
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
_WATCHED = re.compile(r"^tfd: {1,8}(\d{1,9}) ", re.MULTILINE | re.ASCII)
_STATES = {"01": "", "02": " (connecting)", "06": " (closed)", "08": " (closed by the peer)"}
_LISTENS = "0A"
_OCTAL = re.compile(r"\\([0-7]{3})")


def complete_lines(text: str) -> list[str]:
    """Return the lines of a table of the kernel's; one that was cut off is left out. Lines end with
    a newline and nothing else: names of files may hold what `str.splitlines` takes for an end."""
    return text.split("\n")[:-1]


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
    children_cpu: int  # of those that have ended, and were waited for
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
    return Stat(
        state=fields[0],
        parent=_signed(fields[1]),
        group=_signed(fields[2]),
        major_faults=_signed(fields[9]),
        cpu=_signed(fields[11]) + _signed(fields[12]),
        children_cpu=_signed(fields[13]) + _signed(fields[14]),
        nice=_signed(fields[16]),
        started=_signed(fields[19]),
        on_cpu=_signed(fields[36]),
        waited_for_disk=_signed(fields[39]),
        exit_status=_signed(fields[49]),
    )


class Pages(NamedTuple):
    """What `statm` says of a process's memory, in pages."""

    mapped: int
    resident: int
    shared: int  # of those: of files, or shared with other processes


def pages(text: str) -> Pages | None:
    """Parse a `statm` file; None if it is none."""
    fields = [whole(each, -1) for each in text.split()[:3]]
    return Pages(*fields) if len(fields) == 3 and min(fields) >= 0 else None


class MemoryUse(NamedTuple):
    """What `status` says of a process's memory, in bytes; 0 where it says nothing."""

    own: int  # of no file, and not shared
    shared: int
    swapped: int
    largest: int  # that it ever had
    mapped: int  # address space


def memory_use(status: dict[str, str]) -> MemoryUse:
    """Return the memory of a process by its `status`, parsed by `table`."""
    return MemoryUse(
        own=_kb(status, "RssAnon"),
        shared=_kb(status, "RssShmem") + _kb(status, "RssFile"),
        swapped=_kb(status, "VmSwap"),
        largest=_kb(status, "VmHWM"),
        mapped=_kb(status, "VmSize"),
    )


def _kb(found: dict[str, str], name: str) -> int:
    return 1024 * quantity(found, name)


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


class Mapping(NamedTuple):
    """A piece of memory that a process has mapped."""

    low: int
    high: int
    rights: str  # "rw-p"; the last is "s" where other processes see what is written
    offset: int  # in the file
    device: str  # "fe:00"
    inode: str
    path: str  # nothing, or "[heap]" and the like, where it is of no file


def mapping(line: str) -> Mapping | None:
    """Parse a line of a `maps` file, without its end; None if it is none."""
    match = _MAPPING.fullmatch(line)
    if match is None:
        return None
    low, high, rights, offset, device, inode, path = match.groups("")
    return Mapping(int(low, 16), int(high, 16), rights, int(offset, 16), device, inode, path)


def mappings(text: str) -> list[Mapping]:
    """Parse a `maps` file."""
    return [found for line in complete_lines(text) if (found := mapping(line)) is not None]


def mapped_files(text: str) -> list[Mapping]:
    """Parse a `maps` file; memory that is of no file is left out."""
    return [each for each in mappings(text) if each.path.startswith("/")]


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


def descriptor_locks(text: str) -> list[tuple[str, int]]:
    """Parse the locks in the `fdinfo` of a descriptor: the kind of each (FLOCK, OFDLCK, POSIX), and
    the process that took it; -1: not known."""
    found = []
    for line in text.split("\n"):  # lock:\t1: FLOCK  ADVISORY  WRITE 10431 fe:00:2492718 0 EOF
        if line.startswith("lock:") and len(fields := line.split()) > 2:
            found.append((fields[2], whole(fields[5], -1) if len(fields) > 5 else -1))
    return found


def watched_descriptors(text: str) -> list[int]:
    """Parse what an epoll instance watches, in its `fdinfo`."""
    return [int(each) for each in _WATCHED.findall(text)]


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
