"""The memory of this process, as the kernel has it mapped."""

from __future__ import annotations

import os
import re

from . import procfs
from .plain_reads import contents

_MAPS, _DETAILS = "/proc/self/maps", "/proc/self/smaps"
_LIBRARY = re.compile(r"^[^/\n]*+(/[^\n]*\.so[^\n]*)", re.MULTILINE)  # a path in `maps`


def own_mappings() -> list[procfs.Mapping]:
    """Return the pieces of memory that this process has mapped, by rising address. Raise OSError if
    they are not told."""
    return procfs.mappings(os.fsdecode(contents(_MAPS)))


def own_libraries() -> set[str]:
    """Return the paths of the libraries that this process has loaded. Raise OSError if they are not
    told.

    Takes half a millisecond. The linker would tell in 30 us, but holds a lock while it calls back:
    if the interpreter is given to another thread in there, and that one imports something or asks
    the same, it waits for the lock with the interpreter in its hands, for ever.
    """
    # Not by `own_mappings`, which takes several times as long: this is asked for before each fork.
    return set(_LIBRARY.findall(os.fsdecode(contents(_MAPS))))


def own_unshared_bytes(address: int) -> int | None:
    """Return how much of the mapping at an address is memory of this process's own, and no longer
    the file's; None if that is not told (gVisor has no such file)."""
    found = False
    try:
        with open(_DETAILS, "rb") as file:  # line by line: all of it takes the kernel milliseconds
            for line in file:
                if b"-" in line[:17] and (area := procfs.mapping(os.fsdecode(line.rstrip(b"\n")))):
                    found = area.low <= address < area.high
                elif found and line.startswith(b"Anonymous:"):
                    return 1024 * int(line.split()[1])
    except OSError:
        pass
    return None
