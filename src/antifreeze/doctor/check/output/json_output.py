"""Render findings as JSON: one object, whose version changes when a field changes its meaning.

Values are exact: what cannot be printed is escaped by JSON itself.
"""

from __future__ import annotations

from typing import Any

from ...._reporting.untrusted_text import json_text
from ..check_result import Result, RuleFinding

VERSION = 1
LONGEST_SOURCE = 2_000  # characters of a line: many findings may be in one of megabytes


def as_json(result: Result) -> str:
    return json_text(
        {
            "version": VERSION,
            "files": result.files,
            "findings": [_one(each) for each in result.found],
            "failures": [str(each) for each in result.failures],
            "not_looked_at": result.not_looked_at,
            "settings": None if result.settings is None else str(result.settings),
        },
        indent=2,
    )


def _one(found: RuleFinding) -> dict[str, Any]:
    return {
        "path": str(found.path),
        "cell": found.cell,
        "line": found.line,
        "column": found.span.column + 1,
        "end_line": found.end_line,
        "end_column": found.span.end_column + 1,
        "code": found.code,
        "name": found.name,
        "severity": found.severity.value,
        "confidence": found.confidence.value,
        "words": found.words,
        "source": found.source[:LONGEST_SOURCE],
        "instead": found.instead,
        "fix": found.fix.title if found.fix is not None and found.can_be_fixed else None,
    }
