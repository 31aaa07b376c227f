"""The file of `fault_log=`: a line of JSON a fault. Whatever becomes of it, the run goes on."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from typing import Any

from .log import logger
from .ranks import who

# Without waiting: a pipe may be full, or have no reader. A terminal does not become ours.
_HOW = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_MODE = 0o600  # exceptions, names of files and lines of source are nobody else's business


class FaultFile:
    """Append lines to a file, each in one call: other ranks may write to it, too."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path
        self._warned = False

    def write(self, line: Mapping[str, Any]) -> None:
        """Append a line. Never raises; the first one that cannot be written is told, and later ones
        are tried: a disk that is full may not stay so."""
        try:
            self._append(json.dumps(line).encode() + b"\n")
        except (OSError, ValueError) as error:  # ValueError: no path at all
            if not self._warned:
                self._warned = True
                logger.warning(
                    "%s: fault_log=%r cannot be written (%s): faults from now on may be missing in"
                    " it. The run goes on; `loader.faults` has the latest.",
                    who(),
                    os.fspath(self._path),
                    error,
                )

    def _append(self, data: bytes) -> None:
        file = os.open(self._path, _HOW, _MODE)
        try:
            if stat.S_ISBLK(os.fstat(file).st_mode):
                raise OSError("that is a disk")
            written = os.write(file, data)
        finally:
            os.close(file)
        if written < len(data):
            raise OSError(f"only {written} of {len(data)} bytes were taken")

    def __repr__(self) -> str:
        return f"<FaultFile {os.fspath(self._path)!r}>"
