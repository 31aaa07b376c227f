"""The environment of a process as it is now. /proc/PID/environ has only what it was started with: a
script that sets `os.environ["TMPDIR"]` is not seen there.

The C library keeps a pointer to the present one, `environ`; its place is in the table of symbols of
the program or of the library. All of it is read, and what was asked for is kept.
"""

from __future__ import annotations

import functools
import os
import struct
from pathlib import Path

from .proc import read

_MOST = 4096  # variables, and bytes of one
_POINTER = struct.Struct("<Q")
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")  # of an ELF file of 64 bits
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_DYNAMIC_SYMBOLS = 11
_MOVED = 3  # a program or library that can lie anywhere: its addresses begin at its own start


def variable(pid: int, name: str) -> str | None:
    """Give the value of a variable: the present one, or else that at the start; None if it has
    none."""
    found = _now(pid)
    if found is None:
        found = read(pid, "environ").split("\0")
    start = f"{name}="
    return next((each[len(start) :] for each in found if each.startswith(start)), None)


def _now(pid: int) -> list[str] | None:
    """Give what is in the environment; None where it cannot be read."""
    try:
        memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
    except OSError:
        return None
    try:
        for address in _places(pid):
            table = _pointer(memory, address)
            if table:
                return _texts(memory, table)
    except (OSError, OverflowError, struct.error, ValueError):
        pass
    finally:
        os.close(memory)
    return None


def _places(pid: int) -> list[int]:
    """Give where `environ` may be: in the program, which may have a copy of its own, then in the C
    library."""
    starts: dict[str, int] = {}
    for line in read(pid, "maps").splitlines():
        place, _, offset, _, _, *name = line.split(maxsplit=5)
        if name and int(offset, 16) == 0:
            starts.setdefault(name[0], int(place.partition("-")[0], 16))
    program = os.readlink(f"/proc/{pid}/exe")
    libraries = [each for each in starts if Path(each).name.startswith(("libc.so", "libc-"))]
    found = []
    for path in [program, *libraries]:
        moved, value = _symbol(f"/proc/{pid}/root{path}", b"environ")
        if value and path in starts:
            found.append(value + (starts[path] if moved else 0))
    return found


def _pointer(memory: int, address: int) -> int:
    return int(_POINTER.unpack(os.pread(memory, _POINTER.size, address))[0])


def _texts(memory: int, table: int) -> list[str]:
    found = []
    for at in range(_MOST):
        text = _pointer(memory, table + at * _POINTER.size)
        if not text:
            break
        found.append(_text(memory, text))
    return found


def _text(memory: int, address: int) -> str:
    page = 4096  # what follows a page may not be there
    whole = b""
    while len(whole) < _MOST and b"\0" not in whole:
        part = os.pread(memory, page - (address + len(whole)) % page, address + len(whole))
        if not part:
            break
        whole += part
    return whole.partition(b"\0")[0].decode(errors="replace")


@functools.lru_cache(maxsize=16)
def _symbol(path: str, name: bytes) -> tuple[bool, int]:
    """Give whether a file's addresses are relative, and the address of a symbol that it defines; 0
    if it does not."""
    with open(path, "rb") as file:
        data = file.read()
    header = _HEADER.unpack_from(data)
    if header[0][:6] != b"\x7fELF\x02\x01":
        return False, 0
    first, size, count = header[6], header[11], header[12]
    sections = [_SECTION.unpack_from(data, first + at * size) for at in range(count)]
    for section in sections:
        if section[1] != _DYNAMIC_SYMBOLS:
            continue
        names = sections[section[6]][4]
        for at in range(section[4], section[4] + section[5], _SYMBOL.size):
            word, _, _, index, value, _ = _SYMBOL.unpack_from(data, at)
            if (
                index
                and value
                and data[names + word : names + word + len(name) + 1] == name + b"\0"
            ):
                return header[1] == _MOVED, value
    return False, 0
