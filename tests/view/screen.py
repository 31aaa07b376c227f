"""Programs on a terminal, and what is on its screen in the end."""

from __future__ import annotations

import fcntl
import os
import re
import select
import struct
import subprocess
import sys
import termios
import textwrap
import time
from pathlib import Path

CODE = re.compile(r"\x1b\[(\??)([0-9;]*)([A-Za-z])|(\r)|(\n)|([^\x1b\r\n]+)")
WIDTH = 100
BOUND_S = 100.0


def open_terminal(width: int = WIDTH) -> tuple[int, int]:
    """Give both ends of a new terminal: the one that shows, and the program's."""
    shows, program = os.openpty()
    fcntl.ioctl(program, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    return shows, program


class Screen:
    """What a terminal makes of the few codes that bars use; an unknown one is an error."""

    def __init__(self) -> None:
        self._lines: list[str] = [""]
        self._row = self._column = 0
        self.cursor = True

    @property
    def lines(self) -> list[str]:
        return [text for line in self._lines if (text := line.rstrip())]

    def feed(self, text: str) -> None:
        at = 0
        while at < len(text):
            found = CODE.match(text, at)
            assert found, repr(text[at : at + 20])
            at = found.end()
            private, number, code, home, newline, plain = found.groups()
            if plain:
                line = self._lines[self._row].ljust(self._column)
                end = self._column + len(plain)
                self._lines[self._row] = line[: self._column] + plain + line[end:]
                self._column = end
            elif home:
                self._column = 0
            elif newline:
                self._row += 1
                self._lines += [""] * (self._row == len(self._lines))
            elif private:
                assert number == "25"
                self.cursor = code == "h"
            elif code == "K":
                assert number == "2"
                self._lines[self._row] = ""
            elif code == "A":
                self._row = max(0, self._row - int(number))
            else:
                assert code == "m", found.group()


def on_terminal(code: str, folder: Path, *, width: int = WIDTH) -> tuple[Screen, str, str]:
    """Run a program; its stderr is a terminal, its stdout, too, unless it goes to a file.

    Gives the screen, all that was written to it, and what went to the file.
    """
    script = folder / "program.py"
    script.write_text(textwrap.dedent(code))
    shows, program = open_terminal(width)
    to_file = "# stdout: file" in code
    environment = {**os.environ, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"}
    for name in ("COLUMNS", "LINES", "NO_COLOR"):
        environment.pop(name, None)
    with open(folder / "stdout", "w") as file:
        process = subprocess.Popen(
            [sys.executable, str(script)],
            stdin=program,
            stdout=file if to_file else program,
            stderr=program,
            env=environment,
            cwd=folder,
        )
    os.close(program)
    raw = _read(shows)
    assert process.wait(BOUND_S) == 0, raw.decode()
    text = raw.decode()
    screen = Screen()
    screen.feed(text)
    return screen, text, (folder / "stdout").read_text()


def _read(shows: int) -> bytes:
    raw, deadline = b"", time.monotonic() + BOUND_S
    try:
        while select.select([shows], [], [], max(0.0, deadline - time.monotonic()))[0]:
            try:
                raw += os.read(shows, 1 << 16)
            except OSError:  # nobody has the other end any more
                return raw
        raise AssertionError(f"the program did not end: {raw!r}")
    finally:
        os.close(shows)
