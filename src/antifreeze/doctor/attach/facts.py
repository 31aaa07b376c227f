"""What was seen of a program from outside: plain data, the same from a live process and a file.

Nothing of the program's data is in it: no values of variables, and of the environment only those in
`KEPT`. A case is two looks, a second apart, since one cannot tell stuck from slow; and one before
them where it was watched for longer, since two cannot tell who gets on from who only wakes up; and
between these the stacks of those who computed meanwhile.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import typing
from dataclasses import dataclass, field
from typing import Any

VERSION = 1  # of the file's form
CALL_NUMBERS = 7  # a system call's own, and six arguments
MOST_ITEMS = 1000  # of any list in it: we write fewer
LONGEST = 1 << 16  # characters of any text in it
DEEPEST = 8  # levels of what our own loader says
LARGEST = 1 << 64  # of any number in it: the kernel has none that are larger
HIDDEN = "***"  # in a command, for what may be secret
# Variables whose values are kept: they are settings, and no secrets.
KEPT = (
    "ANTIFREEZE",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_VISIBLE_DEVICES",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MKL_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "RANK",
    "SLURM_JOB_ID",
    "TMPDIR",
    "TOKENIZERS_PARALLELISM",
    "WORLD_SIZE",
)


@dataclass(frozen=True, slots=True)
class Frame:
    """One line of a stack."""

    name: str  # of the function, with its class where it is known
    file: str
    line: int = 0
    native: bool = False

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{self.name} ({place})"


@dataclass(frozen=True, slots=True)
class Thread:
    """One thread, as the kernel and the interpreter see it."""

    tid: int
    name: str = ""
    state: str = "?"  # the kernel's letter: R runs, S sleeps, D waits for a disk, T is stopped
    waits_in: str = ""  # the kernel's function that it sleeps in
    call: tuple[int, ...] = ()  # number and arguments of the system call it is in; or none
    cpu_s: float = 0.0
    gave_way: int = 0  # how often it went to sleep by itself
    frames: tuple[Frame, ...] = ()  # the innermost first; none: not known
    holds_gil: bool = False
    # Of the lock it sleeps on, if it does: four words of 32 bits (a mutex of C has its owner's tid
    # in the third), the same place in the parent, and the file that the lock is in.
    lock: tuple[int, ...] = ()
    lock_in_parent: tuple[int, ...] = ()
    lock_file: str = ""
    library: str = ""  # whose code has asked the kernel to let it sleep
    sleeps_s: float = 0.0  # that are left, of one that sleeps until a given time
    asleep_s: float = -1.0  # since it last ran, when we came; -1: not known
    opens: str = ""  # the path of the file that it is about to open
    watches: tuple[int, ...] = ()  # descriptors that it waits for, if it waits for several or may
    # Lines further out in its stack that have taken the lock which it waits for: the source says
    # that they stand in a `with` of the same lock.
    taken_at: tuple[Frame, ...] = ()

    def __post_init__(self) -> None:
        if 0 < len(self.call) < CALL_NUMBERS:  # a case may be cut short: no argument is missing
            missing = CALL_NUMBERS - len(self.call)
            object.__setattr__(self, "call", (*self.call, *(0,) * missing))


@dataclass(frozen=True, slots=True)
class Descriptor:
    """One open file."""

    number: int
    target: str  # a path, or what it is: "pipe:[17]", "tcp 10.0.0.1:5 -> 10.0.0.2:443"
    flags: int = 0


@dataclass(frozen=True, slots=True)
class Memory:
    """Of one process, in bytes."""

    own: int = 0
    shared: int = 0
    swapped: int = 0
    largest: int = 0  # that it ever had
    mapped: int = 0  # address space


@dataclass(frozen=True, slots=True)
class Process:
    """One process at one time."""

    pid: int
    parent: int
    name: str = ""
    command: tuple[str, ...] = ()
    state: str = "?"
    started_at: float = 0.0  # seconds since the machine came up
    cpu_s: float = 0.0
    threads: tuple[Thread, ...] = ()
    descriptors: tuple[Descriptor, ...] = ()
    open_files: int = 0
    most_files: int = 0  # the limit; 0: not known
    memory: Memory = Memory()
    read_bytes: int = 0
    written_bytes: int = 0
    # By TCP connections that its parent has not, received and sent; -1: not known.
    network_bytes: int = -1
    read_from_disk: int = 0
    waited_for_disk_s: float = 0.0
    major_faults: int = 0  # pages that had to be fetched from a disk
    libraries: tuple[str, ...] = ()  # names of shared objects it has loaded
    settings: dict[str, str] = field(default_factory=dict)  # of the environment: see KEPT
    cores: int = 0  # that it may use
    nice: int = 0
    traced_by: int = 0  # a debugger
    blind: str = ""  # why there are no stacks of it
    exit_status: int = 0  # of one that is dead and not yet buried, as `wait` would give it
    blocks_signals: int = 0  # a mask: bit n - 1 for signal n; of its main thread
    ignores_signals: int = 0

    @property
    def main_thread(self) -> Thread | None:
        return next((each for each in self.threads if each.tid == self.pid), None)


@dataclass(frozen=True, slots=True)
class Group:
    """The control group (container) that the program is in; 0: no limit, or not known."""

    memory_limit: int = 0
    memory_used: int = 0
    reclaims: int = 0  # how often the limit was met
    kills: int = 0  # by the kernel, for want of memory
    quota_cores: float = 0.0
    throttled: int = 0  # periods
    throttled_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Machine:
    """What all processes share."""

    cores: int = 0
    load: float = 0.0
    memory: int = 0
    memory_free: int = 0  # that programs could have
    swap: int = 0
    swap_free: int = 0
    swapped_in: int = 0  # pages, ever
    swapped_out: int = 0
    shm: int = 0  # /dev/shm
    shm_free: int = 0
    shm_inodes_free: int = 0
    temporary: str = ""  # the folder for temporary files that the program uses
    temporary_there: bool = True
    temporary_free: int = 0
    network_mounts: tuple[str, ...] = ()  # NFS and the like: folder, kind
    container: bool = False
    group: Group = Group()


@dataclass(frozen=True, slots=True)
class Sharer:
    """A process that has a lock on a file with another one: it has inherited the open file."""

    pid: int
    name: str = ""


@dataclass(frozen=True, slots=True)
class FileLock:
    """A lock on a file that one of the program's processes has open."""

    kind: str  # FLOCK, POSIX, OFDLCK
    path: str
    holder: int  # a process; -1 or 0: not known
    holder_name: str = ""  # empty: there is no such process any more
    first: int = 0  # of its bytes
    waiting: tuple[int, ...] = ()  # processes
    sharers: tuple[Sharer, ...] = ()  # that have it too: it is free when the last one closes it


@dataclass(frozen=True, slots=True)
class PipeReader:
    """A process that could read a pipe which somebody of the program is in a write into."""

    pipe: str  # as a descriptor's target
    pid: int
    name: str = ""
    state: str = "?"
    waits_in: str = ""


@dataclass(frozen=True, slots=True)
class Look:
    """All that was seen at one time."""

    at: float  # seconds; only differences mean something
    processes: tuple[Process, ...]
    machine: Machine = Machine()
    file_locks: tuple[FileLock, ...] = ()
    pipe_readers: tuple[PipeReader, ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """One program, looked at twice; and some time before, where it had to be watched."""

    asked: int  # the process that somebody asked about
    looks: tuple[Look, ...]
    unseen: tuple[str, ...] = ()  # what could not be seen, and the command that would show it
    told: dict[str, Any] = field(default_factory=dict)  # what our own loader says, asked
    made_by: str = ""
    version: int = VERSION

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Case:
        """Read a case. Raises ValueError where it is none."""
        try:
            data = json.loads(text, parse_constant=_refuse_constant)
        except json.JSONDecodeError as error:
            raise ValueError(f"it is not JSON: {error}") from None
        except RecursionError:
            raise ValueError("it is not JSON that we could have written: it is too deep") from None
        if not isinstance(data, dict) or "looks" not in data or "version" not in data:
            raise ValueError("it has no looks: it was not written by `antifreeze attach --save`")
        if data["version"] != VERSION:
            raise ValueError(f"its form is {data['version']!r}; this antifreeze reads {VERSION}")
        try:
            case: Case = _build(cls, data)
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"it is damaged: {error}") from None
        if not case.looks:
            raise ValueError("it has no looks")
        return case


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"it is damaged: {name} is no number")


def _build(kind: Any, value: Any) -> Any:
    """Make of JSON what a field asks for. Whoever wrote it, the numbers in it can be reckoned with,
    and there are not more of anything than we would write. Raises TypeError."""
    origin = typing.get_origin(kind)
    if dataclasses.is_dataclass(kind):
        return _built(typing.cast(type, kind), value)
    if origin is tuple:
        inner = typing.get_args(kind)[0]
        if not isinstance(value, list) or len(value) > MOST_ITEMS:
            raise TypeError(f"{_brief(value)} is no list of up to {MOST_ITEMS}")
        return tuple(_build(inner, each) for each in value)
    if origin is dict:
        inner = typing.get_args(kind)[1]
        if not isinstance(value, dict) or len(value) > MOST_ITEMS:
            raise TypeError(f"{_brief(value)} is no table of up to {MOST_ITEMS}")
        return {name: _build(inner, each) for name, each in value.items()}
    if kind is Any:
        return _plain(value, DEEPEST)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value) if abs(value) <= LARGEST else math.inf
    if kind is str and isinstance(value, str) and len(value) > LONGEST:
        raise TypeError(f"{_brief(value)} is too long")
    if type(value) is not kind or (kind in (int, float) and not abs(value) <= LARGEST):
        raise TypeError(f"{_brief(value)} is no {kind.__name__}")
    return value


def _built(kind: type, value: Any) -> Any:
    if not isinstance(value, dict):
        raise TypeError(f"{_brief(value)} is no {kind.__name__}")
    hints = _hints(kind)
    named = {name: _build(hints[name], each) for name, each in value.items() if name in hints}
    return kind(**named)


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {each.name: hints[each.name] for each in dataclasses.fields(kind)}


def _plain(value: Any, deepest: int) -> Any:
    """Return JSON of any form, if it is not too deep."""
    if isinstance(value, (dict, list)) and not deepest:
        raise TypeError("it is too deep")
    if isinstance(value, dict):
        return {name: _plain(each, deepest - 1) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each, deepest - 1) for each in value]
    return value


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]} ..."
