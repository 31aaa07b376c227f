"""One process, as /proc shows it. What has ended, or may not be seen, is left out."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TypeVar

from ...._linux import procfs, syscalls
from ...._linux.bounded_reads import proc_link, proc_numbers, proc_text
from ..facts import HIDDEN, KEPT, Descriptor, Memory, Process, Thread
from . import call_arguments, lock_state
from .socket_peers import Sockets

T = TypeVar("T")
MOST_DESCRIPTORS = 400  # listed of one process; a program that leaks has thousands of the same
MOST_THREADS = 1000  # of one process that are looked at; one may have thirty thousand
_TICKS = os.sysconf("SC_CLK_TCK")
# Those that have threads or locks of their own: whoever asks for more looks into /proc/PID/maps.
_LIBRARIES = (
    *("omp", "blas", "mkl", "tbb", "cuda", "nccl", "gloo", "opencv", "hdf5", "lmdb", "grpc"),
    "arrow",
)
MOST_LIBRARIES = 100  # of those that are written down
_OPTION = re.compile(r"--[A-Za-z][\w.-]*")
_FLAGS = re.compile(r"-[A-Za-z]{1,2}")  # short ones may have their value joined to them
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*[a-z]?")
_SHELL = re.compile(r"(?:ba|da|z|k|c|fi)?sh")
# The first word of a program's arguments that says what it is: what `is_launcher` takes for one.
_LAUNCHER = re.compile(
    r"torchrun|torch\.distributed\.(?:run|launch)|accelerate|lightning|deepspeed|horovodrun"
)
# How multiprocessing starts a process anew: as it writes it, with numbers only, or by its name.
_STARTS = re.compile(
    r"from multiprocessing\.(?:spawn|resource_tracker) import \w+; ?\w+\((?:\w+=)?\d+"
    r"(?:, \w+=\d+)*\)"
)
_STARTED = re.compile(r"from (multiprocessing\.\w+) import ")
MOST_WORDS = 200  # of a command
_MOST_ALIKE = 1000  # commands that differ in what is hidden only
_alike: dict[tuple[str, ...], list[int]] = {}
_OCTAL = re.compile(r"[0-7]{1,20}")
_MOST_FILES = re.compile(r"^Max open files\s+(\d+)", re.MULTILINE)


read = proc_text


def parents() -> dict[int, int]:
    """Return the parent of every process of the machine."""
    found = {}
    for pid in proc_numbers(""):
        if (stat := procfs.stat(read(pid, "stat"))) is not None:
            found[pid] = stat.parent
    return found


def process(pid: int, sockets: Sockets) -> Process | None:
    """Look at a process; None if there is none."""
    stat = procfs.stat(read(pid, "stat"))
    if stat is None:
        return None
    status = procfs.table(read(pid, "status"))
    io = procfs.table(read(pid, "io"))
    numbers = proc_numbers(pid, "fd")
    most = _MOST_FILES.search(read(pid, "limits"))
    return Process(
        pid=pid,
        parent=stat.parent,
        name=name(pid),
        command=_command(pid),
        state=stat.state,
        started_at=stat.started / _TICKS,
        cpu_s=stat.cpu / _TICKS,
        threads=_threads(pid, stat.parent),
        descriptors=_descriptors(pid, numbers, sockets),
        open_files=len(numbers),
        most_files=procfs.whole(most[1]) if most else 0,
        memory=Memory(**procfs.memory_use(status)._asdict()),
        read_bytes=procfs.quantity(io, "rchar"),
        written_bytes=procfs.quantity(io, "wchar"),
        read_from_disk=procfs.quantity(io, "read_bytes"),
        waited_for_disk_s=stat.waited_for_disk / _TICKS,
        major_faults=stat.major_faults,
        libraries=tuple(sorted(_libraries(pid)))[:MOST_LIBRARIES],
        settings=_settings(pid),
        cores=_cores(pid),
        nice=stat.nice,
        traced_by=procfs.quantity(status, "TracerPid"),
        exit_status=stat.exit_status if stat.state in "ZX" else 0,
        blocks_signals=procfs.hexadecimal(status.get("SigBlk", "0")),
        ignores_signals=procfs.hexadecimal(status.get("SigIgn", "0")),
    )


def _libraries(pid: int) -> set[str]:
    names = {each.path.rpartition("/")[2] for each in procfs.mapped_files(read(pid, "maps"))}
    return {
        each
        for each in names
        if (start := each.partition(".so")[0]) != each and any(word in start for word in _LIBRARIES)
    }


def without_secrets(command: tuple[str, ...]) -> tuple[str, ...]:
    """Return a command without anything that may be secret: what is kept is the program, Python's
    own flags, the name of the script or module, and the names of options."""
    if len(command) == 1 and " " in command[0]:  # a title that a program has given itself
        return (" ".join(without_secrets(tuple(command[0].split(" ")))),)
    first = os.path.basename(command[0])
    if _PYTHON.fullmatch(first):
        known = _of_python(command)
    elif _SHELL.fullmatch(first) and len(command) > 1 and not command[1].startswith("-"):
        known = command[:2]
    else:
        known = command[:1]
    rest = (_argument(each, at) for at, each in enumerate(command) if at >= len(known))
    return (*known, *rest)


def _of_python(command: tuple[str, ...]) -> tuple[str, ...]:
    """Return the beginning of a command that is Python's own: up to the script, the module, or the
    code, which is hidden."""
    found = [command[0]]
    value_of = ""
    for part in command[1:]:
        if value_of:
            found.append(_value(value_of, part))
        elif part.startswith("--"):
            found.append(_argument(part, 1))
            continue
        elif part == "-" or not part.startswith("-"):
            return (*found, part)
        else:
            at = next((at for at, letter in enumerate(part) if letter in "cmWX"), len(part))
            value_of, joined = part[at : at + 1], part[at + 1 :]
            found.append(part[: at + 1] + (_value(value_of, joined) if joined else ""))
            if not joined:
                continue
        if value_of in ("c", "m"):
            return tuple(found)
        value_of = ""
    return tuple(found)


def _value(flag: str, text: str) -> str:
    """Return what may be kept of the value of one of Python's own flags."""
    if flag != "c":
        name, equals, _ = text.partition("=")
        return f"{name}={HIDDEN}" if equals else text
    if _STARTS.fullmatch(text):
        return text
    started = _STARTED.match(text)
    return started[1] if started else HIDDEN


def _argument(text: str, at: int) -> str:
    """Return what may be kept of an argument of a program."""
    name, equals, _ = text.partition("=")
    if _OPTION.fullmatch(name):
        return f"{name}={HIDDEN}" if equals else name
    if not text or text == "--" or _FLAGS.fullmatch(text):
        return text
    if at < 4 and _LAUNCHER.fullmatch(os.path.basename(text)):
        return text
    return text[:2] + HIDDEN if _FLAGS.match(text) else HIDDEN


def _command(pid: int) -> tuple[str, ...]:
    """Return the command of a process without secrets. Those of two processes are equal only if
    they were with them: what is forked has its parent's, and a script started once more has not."""
    whole = tuple(procfs.strings(read(pid, "cmdline")))[:MOST_WORDS]
    kept = without_secrets(whole)
    if len(_alike) >= _MOST_ALIKE:
        _alike.clear()
    known = _alike.setdefault(kept, [])
    if (mark := hash(whole)) not in known:
        known.append(mark)
    number = known.index(mark)
    return (*kept, f"({number + 1})") if number else kept


def threads(pid: int) -> list[int]:
    """Return the numbers of a process's threads, at most `MOST_THREADS`: the main one, those that
    were started first, and those that were started last. None if it has ended."""
    found = proc_numbers(pid, "task")
    kept = both_ends(found, MOST_THREADS)
    return kept if pid not in found or pid in kept else sorted({*kept[1:], pid})


def number_of_threads(pid: int) -> int:
    return len(proc_numbers(pid, "task"))


def both_ends(items: Sequence[T], most: int) -> list[T]:
    """Return the first and the last of many: what matters is more often there than in between."""
    if len(items) <= most:
        return list(items)
    return [*items[: most // 2], *items[-(most - most // 2) :]]


def _threads(pid: int, parent: int) -> tuple[Thread, ...]:
    maps = lock_state.Maps(pid)
    return tuple(
        found for tid in threads(pid) if (found := _thread(pid, tid, parent, maps)) is not None
    )


def _thread(pid: int, tid: int, parent: int, maps: lock_state.Maps) -> Thread | None:
    at = "task", str(tid)
    stat = procfs.stat(read(pid, *at, "stat"))
    if stat is None:
        return None
    status = procfs.table(read(pid, *at, "status"))
    asked = read(pid, *at, "syscall")
    call = syscalls.parse(asked, os.uname().machine)
    place = read(pid, *at, "wchan").strip()
    return Thread(
        tid=tid,
        name=read(pid, *at, "comm").strip(),
        state=stat.state,
        waits_in="" if place == "0" else place,
        call=call,
        cpu_s=stat.cpu / _TICKS,
        gave_way=procfs.quantity(status, "voluntary_ctxt_switches"),
        lock=lock_state.words(pid, call),
        lock_in_parent=lock_state.words(parent, call),
        lock_file=lock_state.file_of(maps, call),
        library=maps.library(asked),
        sleeps_s=call_arguments.sleeps_s(pid, call),
        opens=call_arguments.opens(pid, call),
        watches=call_arguments.watches(pid, call, place),
    )


def _descriptors(pid: int, numbers: list[int], sockets: Sockets) -> tuple[Descriptor, ...]:
    found = []
    for number in numbers[:MOST_DESCRIPTORS]:
        if target := proc_link(pid, "fd", str(number)):
            found.append(Descriptor(number, sockets.name(target), _flags(pid, number)))
    return tuple(found)


def _settings(pid: int) -> dict[str, str]:
    pairs = (each.partition("=") for each in procfs.strings(read(pid, "environ")))
    return {name: value for name, _, value in pairs if name in KEPT}


def _cores(pid: int) -> int:
    try:
        return len(os.sched_getaffinity(pid))
    except OSError:
        return 0


def owner_of_thread(number: int) -> int:
    """Return the process of a thread; a process is its own."""
    return procfs.quantity(procfs.table(read(number, "status")), "Tgid") or number


def inner_number(pid: int, tid: int) -> int:
    """Return the number that a thread has in the innermost container that it is in."""
    numbers = procfs.table(read(pid, "task", str(tid), "status")).get("NSpid", "").split()
    return procfs.whole(numbers[-1]) if numbers else tid


def sleeps_in(pid: int) -> str:
    """Return the kernel's function that a process sleeps in."""
    return read(pid, "wchan").strip()


def name(pid: int) -> str:
    return read(pid, "comm").strip()


def state(pid: int) -> str:
    """Return the kernel's letter for what a process does."""
    return procfs.state(read(pid, "stat"))


def thread_state(pid: int, tid: int) -> str:
    """Return the kernel's letter for what a thread does."""
    return procfs.state(read(pid, "task", str(tid), "stat"))


def opened(pid: int, kind: str) -> list[tuple[str, int]]:
    """Return target and flags of the open files of a process whose targets begin so."""
    found = []
    for number in proc_numbers(pid, "fd"):
        target = proc_link(pid, "fd", str(number))
        if target.startswith(kind):
            found.append((target, _flags(pid, number)))
    return found


def _flags(pid: int, number: int) -> int:
    text = procfs.table(read(pid, "fdinfo", str(number))).get("flags", "")
    return int(text, 8) if _OCTAL.fullmatch(text) else 0


def gave_way(pid: int, tid: int) -> int:
    """Return how often a thread went to sleep by itself; -1 if it has ended."""
    text = read(pid, "task", str(tid), "status")
    return procfs.quantity(procfs.table(text), "voluntary_ctxt_switches") if text else -1


def written(pid: int) -> int:
    """Return how many bytes a process has written."""
    return procfs.quantity(procfs.table(read(pid, "io")), "wchar")


def read_and_written(pid: int) -> tuple[int, int]:
    """Return how many bytes a process has read and written."""
    io = procfs.table(read(pid, "io"))
    return procfs.quantity(io, "rchar"), procfs.quantity(io, "wchar")


def group(pid: int) -> int:
    """Return the process group of a process; 0 if there is none."""
    stat = procfs.stat(read(pid, "stat"))
    return 0 if stat is None else stat.group


def runs_python(pid: int) -> bool:
    """Whether a process runs Python, by what it has loaded: it may have changed its title."""
    if not (program := proc_link(pid, "exe")):
        return False  # another user's: none of the program
    return "python" in os.path.basename(program) or "libpython" in read(pid, "maps")
