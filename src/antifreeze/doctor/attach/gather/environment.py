"""The environment of a process as it is now. /proc/PID/environ has only what it was started with: a
script that sets `os.environ["TMPDIR"]` is not seen there.

The C library keeps a pointer to the present one, `environ`; its place is in the table of symbols of
the program or of the library. All of it is read, and what was asked for is kept.
"""

from __future__ import annotations

import struct
from pathlib import PurePath

from ...._linux import procfs
from ...._linux.bounded_reads import file_part, path_seen_by, proc_link, proc_memory, proc_text

MOST_VARIABLES = 4096
MOST_BYTES = 4096  # of one variable
MOST_SYMBOLS = 200_000  # of a file: the interpreter has 2,000, the C library 3,000
MOST_SECTIONS = 200  # of a file
_PAGE = 4096  # what follows a page may not be there
_POINTER = struct.Struct("<Q")
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")  # of an ELF file of 64 bits
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_DYNAMIC_SYMBOLS = 11
_MOVED = 3  # a program or library that can lie anywhere: its addresses begin at its own start
_NAMES_BYTES = 1 << 22  # of the names of a file's symbols


def variable(pid: int, name: str) -> str | None:
    """Return the value of a variable: the present one, or else that at the start; None if it has
    none."""
    found = _now(pid)
    if found is None:
        found = procfs.strings(proc_text(pid, "environ"))
    start = f"{name}="
    return next((each[len(start) :] for each in found if each.startswith(start)), None)


def _now(pid: int) -> list[str] | None:
    """Return what is in the environment; None where it cannot be read."""
    for address in _places(pid):
        if table := _pointer(pid, address):
            return _texts(pid, table)
    return None


def _places(pid: int) -> list[int]:
    """Return where `environ` may be: in the program, which may have a copy of its own, then in the
    C library."""
    starts: dict[str, int] = {}
    for each in procfs.mapped_files(proc_text(pid, "maps")):
        if each.offset == 0:
            starts.setdefault(each.path, each.low)
    program = proc_link(pid, "exe")
    libraries = [each for each in starts if PurePath(each).name.startswith(("libc.so", "libc-"))]
    found = []
    for path in [program, *libraries[:2]]:
        moved, value = _symbol(pid, path_seen_by(pid, path), b"environ")
        if value and path in starts:
            found.append(value + (starts[path] if moved else 0))
    return found


def _pointer(pid: int, address: int) -> int:
    data = proc_memory(pid, _POINTER.size, address)
    return int(_POINTER.unpack(data)[0]) if len(data) == _POINTER.size else 0


def _texts(pid: int, table: int) -> list[str]:
    found = []
    for at in range(MOST_VARIABLES):
        text = _pointer(pid, table + at * _POINTER.size)
        if not text:
            break
        found.append(_text(pid, text))
    return found


def _text(pid: int, address: int) -> str:
    whole = b""
    while len(whole) < MOST_BYTES and b"\0" not in whole:
        at = address + len(whole)
        part = proc_memory(pid, _PAGE - at % _PAGE, at)
        if not part:
            break
        whole += part
    return whole.partition(b"\0")[0].decode(errors="replace")


def _symbol(pid: int, path: str, name: bytes) -> tuple[bool, int]:
    """Return whether a file's addresses are relative, and the address of a symbol that it defines;
    0 if it does not. The file may be anything by now: parts of it are read, each within bounds."""
    try:
        return _found(pid, path, name)
    except struct.error:
        return False, 0


def _found(pid: int, path: str, name: bytes) -> tuple[bool, int]:
    header = _HEADER.unpack(file_part(path, 0, _HEADER.size, pid))
    if header[0][:6] != b"\x7fELF\x02\x01":
        return False, 0
    first, size, count = header[6], header[11], header[12]
    if size != _SECTION.size or count > MOST_SECTIONS:
        return False, 0
    table = file_part(path, first, size * count, pid)
    sections = [_SECTION.unpack_from(table, at * size) for at in range(count)]
    for section in sections:
        if section[1] != _DYNAMIC_SYMBOLS or section[6] >= count:
            continue
        names_at, names_size = sections[section[6]][4:6]
        names = file_part(path, names_at, min(names_size, _NAMES_BYTES), pid)
        symbols = file_part(path, section[4], min(section[5], MOST_SYMBOLS * _SYMBOL.size), pid)
        whole = len(symbols) - len(symbols) % _SYMBOL.size
        for word, _, _, index, value, _ in _SYMBOL.iter_unpack(symbols[:whole]):
            if index and value and names[word : word + len(name) + 1] == name + b"\0":
                return header[1] == _MOVED, value
    return False, 0
