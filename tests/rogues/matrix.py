"""The matrix: what the loop sees if a worker misbehaves, by phase and way, and in how long.

The page `docs/crash-matrix.md` is written from this table (`page`), and `test_matrix.py` holds it
against real processes. The rogues themselves are in `misdeeds.py`. All cells have 12 samples,
batches of 3, 2 workers; sample 5, in batch 1, is the one that misbehaves where a sample does.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from typing import Any

PHASES = {
    "import": "a library that the dataset needs is imported in a clean process (`spawn`)",
    "unpickle": "`__setstate__` of the dataset, in a clean process (`spawn`)",
    "init_fn": "`worker_init_fn`",
    "getitem": "`__getitem__` of sample 5",
    "collate": "`collate_fn`, for the batch of sample 5",
    "pack": "`__reduce__` of an object in the batch of sample 5",
    "seal": "the slab is sealed, and half of the message that hands it over is sent",
    "exit": "the worker leaves: a finalizer of multiprocessing's",
}
WAYS = {
    "raise": "raises a RuntimeError",
    "sys.exit": "calls sys.exit(7)",
    "os._exit": "calls os._exit(7)",
    "SIGSEGV": "reads address 0",
    "SIGKILL": "is killed",
    "SIGSTOP": "is stopped",
    "hang with the GIL": "waits in native code, for ever, with the interpreter's lock",
    "hang without it": "sleeps for ever",
    "eat memory": "needs more than its group may have, and the kernel ends it",
    "fork a grandchild": "forks a process that stays, and holds all it inherited",
}
CRASHES = {
    "sys.exit": "exited unexpectedly with exit code 7",
    "os._exit": "exited unexpectedly with exit code 7",
    "SIGSEGV": "is killed by signal: Segmentation fault",
    "SIGKILL": "is killed by signal: Killed",
    "eat memory": "out of memory: the kernel ended it",
}
HANGS = {
    "hang with the GIL": ", in _hang_with_gil",
    "hang without it": ", in _hang_without_gil",
}

# Seconds, each at least five times what was measured with six cells at once on two cores.
AT_ONCE_S = 10.0  # 0.1 to 1.4
EATEN_S = 45.0  # 0.6 to 8: to eat 400 MB takes its time
LIMITED_S = 20.0  # 1.2 to 3: sample_timeout=1, once or twice
RESUMED_S = 25.0  # 3.2 to 4.7: whoever is stopped is told to go on after 3 s
LOCKED_S = 55.0  # 5.3 to 10: a deadlock, or a worker that does not leave, is ended after 5 s
CLEAN_S = 10.0  # 0.3 to 1.7: a zygote is made anew in a clean process that is there
BEGUN_S = 45.0  # 6 to 8: one that opens the dataset for 6 s without moving is replaced

TIMED = {"sample_timeout": 1.0}


class Sees(Enum):
    """What the loop sees."""

    SAME = "all batches, bit for bit"
    RAISED = "an error, in its turn; all other batches, bit for bit"
    WITHOUT = "all batches, but that of sample 5 without it"
    OVER = "an error, and no further batch"
    CANNOT = "cannot be"


@dataclass(frozen=True)
class Cell:
    """One phase, one way, and what comes of it."""

    phase: str
    way: str
    sees: Sees
    within_s: float
    error: str = ""  # its class
    words: tuple[str, ...] = ()  # of the error, or where there is none, of what is said meanwhile
    arguments: dict[str, Any] = field(default_factory=dict)
    once: bool = True  # not every time
    leaves_at_error: bool = False  # the loop does not go on
    why_not: str = ""  # it cannot be

    @property
    def name(self) -> str:
        """Name it: its place, whether it happens every time, and what of the policy matters."""
        policy = self.arguments.get("on_error", "")
        rest = "" if self.once else f", always{f', {policy}' if policy else ''}"
        return f"{self.phase}, {self.way}{rest}"

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "sees": self.sees.name, "name": self.name}


def _import() -> list[Cell]:
    """What a dataset needs is imported once, in the zygote: no worker is there yet."""

    def opening(ended: str) -> tuple[str, str]:
        return "its zygote (pid", f"{ended} while it opened the dataset"

    ends = {
        "os._exit": opening("ended with exit code 7"),
        "SIGSEGV": opening("was killed by signal 11"),
        "SIGKILL": ("was killed by signal 9 (someone sent SIGKILL", *opening(")")),
        "eat memory": ("was killed by signal 9 (out of memory: ", *opening(")")),
    }
    return _in_clean("import", ends)


def _unpickle() -> list[Cell]:
    """An object with code of its own for that is opened in each worker."""
    ends = {way: (words, "was opening the dataset") for way, words in CRASHES.items()}
    return _in_clean("unpickle", ends)


def _in_clean(phase: str, ends: dict[str, tuple[str, ...]]) -> list[Cell]:
    def same(way: str, *words: str, within_s: float = CLEAN_S) -> Cell:
        return Cell(phase, way, Sees.SAME, within_s, words=words)

    gone, still = "its zygote (pid", ("opens the dataset, was ", "at misdeeds.py:")
    return [
        same("raise", gone, "could not be made: RuntimeError: a rogue's own words"),
        same("sys.exit", gone, "could not be made: SystemExit: 7"),
        same("os._exit", *ends["os._exit"]),
        same("SIGSEGV", *ends["SIGSEGV"]),
        same("SIGKILL", *ends["SIGKILL"]),
        same("SIGSTOP", "is stopped", "It was told to go on (SIGCONT)", within_s=RESUMED_S),
        *(same(way, *still, words, within_s=BEGUN_S) for way, words in HANGS.items()),
        same("eat memory", *ends["eat memory"], within_s=EATEN_S),
        same("fork a grandchild"),
    ]


def _in_worker(phase: str, dies: str, does: str, raises: Cell) -> list[Cell]:
    """A worker that is lost is replaced, and what it worked on is loaded again: bit for bit."""

    def same(way: str, within_s: float, *words: str) -> Cell:
        return Cell(phase, way, Sees.SAME, within_s, words=words)

    resumed = f"{does} is stopped", "It was told to go on (SIGCONT)"
    return [
        raises,
        *(
            same(way, EATEN_S if way == "eat memory" else AT_ONCE_S, words, dies)
            for way, words in CRASHES.items()
        ),
        same("SIGSTOP", RESUMED_S, *resumed),
        *(
            replace(same(way, LIMITED_S, f"{does} was ", "at misdeeds.py:", words), arguments=TIMED)
            for way, words in HANGS.items()
        ),
        same("fork a grandchild", AT_ONCE_S),
    ]


def _raised(phase: str, error: str, *words: str) -> Cell:
    return Cell(phase, "raise", Sees.RAISED, AT_ONCE_S, error, ("a rogue's own words", *words))


_INIT_FN = _in_worker(
    "init_fn",
    "was in worker_init_fn",
    "worker_init_fn",
    _raised("init_fn", "RuntimeError", "raised while calling worker_init_fn("),
)
_GETITEM = _in_worker(
    "getitem",
    "was loading sample 5 (batch 1: samples [3, 4, 5])",
    "sample 5 (batch 1)",
    _raised("getitem", "RuntimeError", "raised while loading sample 5 (batch 1)"),
)
_COLLATE = _in_worker(
    "collate",
    "was collating batch 1: samples [3, 4, 5]",
    "collating samples [3, 4, 5] (batch 1)",
    _raised("collate", "RuntimeError", "raised while collating samples 3, 4, 5 (batch 1)"),
)
_PACK = _in_worker(
    "pack",
    "was packing batch 1: samples [3, 4, 5]",
    "packing samples [3, 4, 5] (batch 1)",
    _raised("pack", "TransportFailed", "what came of collating samples 3, 4, 5 (batch 1)"),
)


def _seal() -> list[Cell]:
    """Here our own code sends: `sample_timeout` is not about that. The loop's own timeout is."""
    dies = "was handing over batch"
    raises = Cell(
        "seal", "raise", Sees.SAME, AT_ONCE_S, words=("exited unexpectedly with exit code 1", dies)
    )
    cells = _in_worker("seal", dies, "handing over samples", raises)
    special = {
        "SIGSTOP": Cell(
            "seal", "SIGSTOP", Sees.SAME, RESUMED_S, words=("handing over samples", "(SIGCONT)")
        ),
        "hang with the GIL": Cell(
            "seal",
            "hang with the GIL",
            Sees.SAME,
            LOCKED_S,
            words=("handing over samples", "was deadlocked at misdeeds.py:", ", in _hang_with_gil"),
            arguments=TIMED,  # not that it would end this: a worker then looks at itself more often
        ),
        "hang without it": Cell(
            "seal",
            "hang without it",
            Sees.OVER,
            RESUMED_S,
            "WorkerHung",
            ("timed out after 3 seconds", "handing over samples", "at misdeeds.py:"),
            arguments={"timeout": 3.0},
            leaves_at_error=True,
        ),
    }
    return [special.get(cell.way, cell) for cell in cells]


def _exit() -> list[Cell]:
    """All batches are there already: nothing can be lost, but for time."""
    slow = {"SIGSTOP": LOCKED_S, **dict.fromkeys(HANGS, LOCKED_S), "eat memory": EATEN_S}
    said = {"raise": ("a rogue's own words",), **dict.fromkeys(HANGS, ("did not leave in 5 s",))}
    return [
        Cell("exit", way, Sees.SAME, slow.get(way, AT_ONCE_S), words=said.get(way, ()))
        for way in WAYS
    ]


def _in_order(cells: list[Cell]) -> list[Cell]:
    return sorted(cells, key=lambda cell: list(WAYS).index(cell.way))


# Once, so that the next try is healthy.
TABLE: list[Cell] = [
    cell
    for cells in (
        _import(),
        _unpickle(),
        _INIT_FN,
        _GETITEM,
        _COLLATE,
        _PACK,
        _seal(),
        _exit(),
    )
    for cell in _in_order(cells)
]


def _every_time(cells: list[Cell], where: str) -> list[Cell]:
    """A sample that ends or hangs two workers is raised, and named."""
    made = []
    for cell in _in_order(cells):
        if cell.way == "fork a grandchild":
            continue
        hangs = cell.way in ("SIGSTOP", *HANGS)
        error = cell.error or ("WorkerHung" if hangs else "WorkerCrashed")
        words = cell.words if cell.way == "raise" else (where,)
        bound_s = LIMITED_S if hangs else cell.within_s
        arguments = TIMED if hangs else {}
        made.append(
            replace(
                cell,
                sees=Sees.RAISED,
                error=error,
                words=words,
                within_s=bound_s,
                arguments=arguments,
                once=False,
            )
        )
    return made


def _skipped(cells: list[Cell]) -> list[Cell]:
    return [
        replace(
            cell,
            sees=Sees.WITHOUT,
            error="",
            words=("samples of this epoch: 1 skipped",),
            arguments={**cell.arguments, "on_error": "skip"},
        )
        for cell in cells
    ]


_GETITEM_ALWAYS = _every_time(_GETITEM, "sample 5 (batch 1")

# Every time: the run must end, or go on without the sample, and say what it was.
ALWAYS: list[Cell] = [
    *_GETITEM_ALWAYS,
    *_skipped(_GETITEM_ALWAYS),
    *_every_time(_COLLATE, "[3, 4, 5]"),
    Cell(
        "init_fn",
        "SIGKILL",
        Sees.OVER,
        AT_ONCE_S,
        "WorkerNeverStarted",
        ("is killed by signal: Killed", "It was in worker_init_fn"),
        once=False,
    ),
    Cell(
        "init_fn",
        "hang without it",
        Sees.OVER,
        RESUMED_S,
        "WorkerHung",
        ("worker_init_fn was stuck at misdeeds.py",),
        arguments=TIMED,
        once=False,
    ),
    Cell(
        "unpickle",
        "raise",
        Sees.OVER,
        CLEAN_S,
        "WorkerNeverStarted",
        ("could not be made: RuntimeError: a rogue's own words",),
        once=False,
    ),
    Cell(
        "unpickle",
        "SIGKILL",
        Sees.OVER,
        CLEAN_S,
        "WorkerNeverStarted",
        ("is killed by signal: Killed", "It was opening the dataset"),
        once=False,
    ),
    Cell(
        "unpickle",
        "hang without it",
        Sees.OVER,
        2 * BEGUN_S,
        "WorkerFailed",
        ("at misdeeds.py:", "in _hang_without_gil"),
        once=False,
    ),
]


# ---- the page ------------------------------------------------------------------------------------

HEAD = """# What the loop sees when a worker misbehaves

Written by `make docs` from `tests/rogues/matrix.py`; `tests/rogues/test_matrix.py` does each of
these to real processes. Each cell has 12 samples in batches of 3, and 2 workers; sample 5, in batch
1, is the one that misbehaves. After each, no process of ours is left.

"Same" means: the loop gets all batches, bit for bit those of an undisturbed run, whatever samples
draw. The seconds are the bound that the test allows on a crowded machine, for the whole epoch and
the end of its workers; most cells take a fifth of it, or less.

The ways:

"""

BETWEEN = """
## Once

The next try is healthy.

"""

EVERY_TIME = """
## Every time

A sample that ends or hangs its worker twice is raised in its turn, and named; with
`on_error="skip"` its batch comes without it.
"""

_SHORT = {
    Sees.SAME: "same",
    Sees.RAISED: "error, then the rest",
    Sees.OVER: "error",
    Sees.WITHOUT: "the rest",
    Sees.CANNOT: "cannot be",
}


def page() -> str:
    """Give the text of `docs/crash-matrix.md`."""
    ways = [f"- **{way}**: {what};" for way, what in WAYS.items()]
    ways[-1] = ways[-1][:-1] + "."
    grid = [f"| | {' | '.join(PHASES)} |", "|---" * (len(PHASES) + 1) + "|"]
    for way in WAYS:
        row = [_SHORT[cell.sees] for cell in TABLE if cell.way == way]
        grid.append(f"| {way} | {' | '.join(row)} |")
    parts = [HEAD, "\n".join(ways), "\n", BETWEEN, "\n".join(grid), "\n"]
    for phase, what in PHASES.items():
        parts.append(f"\n### {phase}\n\nWhen: {what}.\n\n")
        parts.append(_rows([cell for cell in TABLE if cell.phase == phase]))
    parts.append(EVERY_TIME)
    for phase in dict.fromkeys(cell.phase for cell in ALWAYS):
        parts.append(f"\n### {phase}, every time\n\n")
        parts.append(_rows([cell for cell in ALWAYS if cell.phase == phase]))
    return "".join(parts)


def _rows(cells: list[Cell]) -> str:
    rows = ["| way | the loop sees | in its words | s |", "|---|---|---|---|"]
    for cell in cells:
        given = ", ".join(f"`{name}={value!r}`" for name, value in cell.arguments.items())
        way = f"{cell.way}, with {given}" if given else cell.way
        sees = f"`{cell.error}`: {cell.sees.value}" if cell.error else cell.sees.value
        words = " ... ".join(f'"{words}"' for words in cell.words)
        rows.append(f"| {way} | {cell.why_not or sees} | {words} | {cell.within_s:g} |")
    return "\n".join(rows) + "\n"
