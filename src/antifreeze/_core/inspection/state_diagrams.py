"""Diagrams of the state machines, written from their tables (see docs/write_states.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import fault_verdicts, slab_leases, worker_slots
from ..states import State

Table = Mapping[tuple[Any, Any], Any]

INTRODUCTIONS = {
    "worker process": "One process in a worker slot, from its start to its end.",
    "worker slot": "A numbered place for a worker, kept for the whole run; processes come and go.",
    "lease": "The right to use a slab of a worker's memory, for one batch.",
}


def pages() -> dict[str, str]:
    """Return every page by its file name."""
    tables: dict[str, Table] = {
        "worker process": worker_slots.LIFE_TRANSITIONS,
        "worker slot": worker_slots.SEAT_TRANSITIONS,
        "lease": slab_leases.TRANSITIONS,
    }
    written = {
        f"{name.replace(' ', '-')}.md": _machine(name, table) for name, table in tables.items()
    }
    written["verdicts.md"] = _verdicts()
    return written


def _machine(name: str, table: Table) -> str:
    first: State = next(iter(table))[0]
    arrows = [f"    {a.value} --> {b.value}: {cue.value}" for (a, cue), b in table.items()]
    rows = [f"| {a.value} | {cue.value} | {b.value} |" for (a, cue), b in table.items()]
    return "\n".join(
        [
            f"# The states of a {name}",
            "",
            INTRODUCTIONS[name],
            "Generated from the transition table in the code; `make docs` writes it anew.",
            "",
            "```mermaid",
            "stateDiagram-v2",
            f"    [*] --> {first.value}",
            *arrows,
            "```",
            "",
            "| from | on | to |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def _verdicts() -> str:
    rows = [
        f"| {kind.value} | {_yes(left)} | {_yes(spares)} | {verdict.value} |"
        for (kind, left, spares), verdict in fault_verdicts.VERDICTS.items()
    ]
    return "\n".join(
        [
            "# What is decided about a fault",
            "",
            "Generated from the table in the code; `make docs` writes it anew.",
            "",
            "| what happened | an attempt is left | its sample can be spared | verdict |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def _yes(value: bool) -> str:
    return "yes" if value else "no"
