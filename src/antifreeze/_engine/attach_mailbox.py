"""The mailbox between a program with our loader and `antifreeze attach`: a piece of memory.

1. The program has a sealed memfd. Whoever may look into a process may open its descriptors through
   /proc/PID/fd, so the kernel decides who may ask: the same user, and root. There is no name that
   another user could take first, no queue that another user could fill, and nothing to connect to.
   It also works across network namespaces, and goes with the process.
2. The asker writes a number of its own to `asked`. The program looks at that once a second; if it
   has changed, it writes an answer: `answers` is odd while it writes, and two more after it.
3. Neither side trusts the other. Nothing is mapped, so nobody dies of a file that shrinks; an
   answer is bounded, has a checksum against being read half written, and is JSON.
4. Workers inherit the descriptor. `pid` says whose it is.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .._core.limits import LIMITS
from .._linux import procfs
from .._linux.bounded_reads import proc_link, proc_numbers, proc_text
from .._linux.clock import monotonic, pause
from .._linux.open_descriptors import open_their_file

NAME = "antifreeze-attach"
_MAGIC = b"antifrz1"
_HEADER = struct.Struct("<8sQQQQQ")  # magic, pid, asked, length, checksum, answers
_NUMBER = struct.Struct("<Q")
_RESULT = struct.Struct("<QQQ")  # the last three of the header
_ASKED_AT, _RESULT_AT, _ANSWERS_AT = 16, 24, 40
_BODY_AT = 64
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_LINK = f"/memfd:{NAME} (deleted)"

assert _HEADER.size <= _BODY_AT


class Mailbox:
    """The program's side. Used by one thread."""

    def __init__(self) -> None:
        self._file: int | None = None
        self._seen = 0  # the last question
        self._answers = 0
        with contextlib.suppress(OSError):  # no descriptor is left: nobody can ask
            self._file = self._create()

    def _create(self) -> int:
        file = os.memfd_create(NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            # Takes no memory until it is written to.
            os.ftruncate(file, _BODY_AT + LIMITS.attach.answer_bytes)
            fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SEALS)
            os.pwrite(file, _HEADER.pack(_MAGIC, os.getpid(), 0, 0, 0, 0), 0)
        except BaseException:
            os.close(file)
            raise
        return file

    @property
    def is_asked(self) -> bool:
        """Whether somebody has asked since the last answer. Never blocks."""
        return self._file is not None and self._question() != self._seen

    def answer(self, text: bytes) -> None:
        """Write an answer. Never blocks; raises OSError where there is no memory for it."""
        if self._file is None:
            return
        if len(text) > LIMITS.attach.answer_bytes:
            text = b'{"error": "the answer of its loader is longer than 1 MiB"}'
        self._seen = self._question()
        os.pwrite(self._file, _NUMBER.pack(self._answers + 1), _ANSWERS_AT)
        os.pwrite(self._file, text, _BODY_AT)
        self._answers += 2
        result = _RESULT.pack(len(text), zlib.crc32(text), self._answers)
        os.pwrite(self._file, result, _RESULT_AT)

    def _question(self) -> int:
        assert self._file is not None
        return int(_NUMBER.unpack(os.pread(self._file, _NUMBER.size, _ASKED_AT))[0])

    def close(self) -> None:
        # In this order: a child that another thread forks in between must not close that number,
        # which is no longer ours there.
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def __repr__(self) -> str:
        state = "closed" if self._file is None else f"{self._answers // 2} answers"
        return f"<Mailbox {state}>"


# ---- who asks -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Question:
    """A mailbox of another process, in which we have put a question."""

    file: int
    before: int  # answers

    def answer(self) -> dict[str, Any] | None:
        """Return the answer; None while there is none. Raises ValueError if it is no answer."""
        _, _, _, length, checksum, answers = _read_header(self.file)
        if answers <= self.before or answers % 2 or length > LIMITS.attach.answer_bytes:
            return None
        text = os.pread(self.file, length, _BODY_AT)
        if zlib.crc32(text) != checksum:  # it is being written anew
            return None
        said = json.loads(text)
        if not isinstance(said, dict) or _depth(said) > LIMITS.attach.answer_depth:
            raise ValueError("not an object")
        return said


def ask(pids: Iterable[int], wait_s: float = LIMITS.attach.answer_s) -> dict[int, dict[str, Any]]:
    """Ask processes how their loaders are, all at once. Processes without a mailbox are left out;
    for one that gives no answer there is an "error"."""
    open_questions: dict[int, _Question] = {}
    found: dict[int, dict[str, Any]] = {}
    try:
        until = monotonic() + wait_s  # somebody may have opened as many files as there can be
        for pid in pids:
            if monotonic() < until and (question := _open_question(pid)) is not None:
                open_questions[pid] = question
        until = monotonic() + wait_s
        while open_questions:
            for pid, question in list(open_questions.items()):
                if (said := _poll_answer(question)) is not None:
                    found[pid] = said
                    os.close(open_questions.pop(pid).file)
            if monotonic() >= until:
                break
            pause(LIMITS.attach.look_s)
        late = {"error": f"its loader gave no answer for {wait_s:g} s"}
        return found | dict.fromkeys(open_questions, late)
    finally:
        for question in open_questions.values():
            os.close(question.file)


def _poll_answer(question: _Question) -> dict[str, Any] | None:
    try:
        return question.answer()
    except (OSError, ValueError, RecursionError, struct.error):
        return {"error": "its loader's answer cannot be read"}


def _open_question(pid: int) -> _Question | None:
    """Put a question into the mailbox of a process; None if it has none, or we may not look."""
    numbers = procfs.table(proc_text(pid, "status")).get("NSpid", "").split()
    known = {pid, *map(procfs.whole, numbers[-1:])}  # its own, in the container that it is in
    for number in proc_numbers(pid, "fd", most=LIMITS.attach.descriptors):
        if proc_link(pid, "fd", str(number)) == _LINK:
            with contextlib.suppress(OSError):
                if (question := _post_question(pid, number, known)) is not None:
                    return question
    return None


def _post_question(holder: int, number: int, known: set[int]) -> _Question | None:
    """Ask, if the mailbox is that of one of these processes. Raises OSError."""
    file = open_their_file(holder, number, _LINK, os.O_RDWR)
    if file is None:
        return None
    try:
        magic, pid, _, _, _, answers = _read_header(file)
        if magic == _MAGIC and pid in known:
            os.pwrite(file, _NUMBER.pack(secrets.randbits(63) + 1), _ASKED_AT)
            return _Question(file, answers)
    except struct.error:  # it is shorter than that
        pass
    except BaseException:
        os.close(file)
        raise
    os.close(file)
    return None


def _read_header(file: int) -> tuple[bytes, int, int, int, int, int]:
    found: tuple[bytes, int, int, int, int, int] = _HEADER.unpack(os.pread(file, _HEADER.size, 0))
    return found


def _depth(value: Any) -> int:
    """Return how many levels a JSON value has."""
    depth, level = 0, [value]
    while level:
        depth += 1
        lists = [each for each in level if isinstance(each, list)]
        lists += [list(each.values()) for each in level if isinstance(each, dict)]
        level = [one for each in lists for one in each]
    return depth
