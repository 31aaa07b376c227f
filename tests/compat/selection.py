"""Which tests `make compat` runs: those that depend on torch or on Python's way to start processes.

All of them take a quarter of an hour on two cores; these take about five minutes, so that every
version can be run for every release. What is left out of a chosen folder says why.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.run import is_usual

TESTS = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Choice:
    """Some files of tests, and why they depend on versions."""

    what: str
    patterns: tuple[str, ...]  # below tests/
    reason: str


def rogues(names: str) -> tuple[str, ...]:
    return tuple(f"rogues/test_{name}.py" for name in names.split())


CHOSEN = (
    Choice(
        "parity",
        ("parity/test_*.py",),
        "torch's loader and ours side by side: the same arguments, batches, errors and draws",
    ),
    Choice(
        "transport",
        ("transport/test_*.py", "contracts/test_*.py"),
        "how tensors cross from process to process, in memory that torch does not own",
    ),
    Choice(
        "recovery",
        rogues("killed matrix crash_library left_epochs streams_resumed kept_by_errors leaving"),
        "workers that are killed or leave in every phase: what the loop sees, and what stays",
    ),
    Choice(
        "starting",
        rogues("first_workers zygotes clean_process fork_hazards pools interrupted_starts")
        + rogues("opened_by_each names_of_processes open_blocks parked_threads raw_attributes")
        + rogues("fork_check stuck_forks used_packages stand_ins stand_ins_in_threads")
        + rogues("process_settings"),
        "forks, threads at the time of a fork (their frames and bytecode are read), and clean"
        " processes: what Python changes most",
    ),
    Choice(
        "sending",
        rogues("sending reducers sent_memory sent_methods sent_tables by_name unfaithful_code"),
        "datasets, tensors, modules and generators that go to another process and stay the same",
    ),
    Choice(
        "hangs",
        rogues("hangs stuck_workers"),
        "samples that hang, with and without the interpreter's lock, found by their stacks",
    ),
    Choice(
        "exam",
        ("failures/test_exam.py",),
        "every known way in which torch's loader fails, as a program that must not",
    ),
    Choice(
        "programs",
        ("integrations/test_ddp.py", "integrations/test_install_names.py"),
        "distributed training on CPUs, and torch's class replaced by ours",
    ),
    Choice(
        "versions",
        ("compat/test_*.py",),
        "every private name of torch that we use, and what differs from version to version",
    ),
)
# In a chosen folder, and not run: why.
LEFT_OUT = {
    "parity/test_accounting.py": "what time was spent on depends on no version, and takes long",
    "compat/test_missing_names.py": "it takes names away from any torch, and takes two minutes",
    "compat/test_results.py": "it is about the table that these runs write, not about versions",
}


def files() -> list[Path]:
    """Return the files, each once."""
    found = {
        path
        for choice in CHOSEN
        for pattern in choice.patterns
        for path in TESTS.glob(pattern)
        if path.relative_to(TESTS).as_posix() not in LEFT_OUT and is_usual(path)
    }
    return sorted(found)
