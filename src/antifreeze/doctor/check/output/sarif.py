"""Render findings as SARIF 2.1.0, which code scanning services read."""

from __future__ import annotations

import os
import urllib.parse
from pathlib import Path
from typing import Any

from ...._reporting.untrusted_text import json_text, printable
from ...._version import VERSION
from ...rules import all_rules, find_rule
from ...rules.rule import Rule
from ...rules.rule_pages import file_name, flow, page
from ..check_result import LEVELS, Result, RuleFinding

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_RANKS = {"certain": 95.0, "likely": 75.0, "possible": 40.0}  # SARIF's `rank`: 0 to 100


def as_sarif(result: Result) -> str:
    rules = list(all_rules())
    places = {rule.code: place for place, rule in enumerate(rules)}
    driver = {
        "name": "antifreeze check",
        "version": VERSION,
        "rules": [_rule(each) for each in rules],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_one(each, places) for each in result.found],
        "invocations": [
            {
                "executionSuccessful": not result.failures,
                "toolExecutionNotifications": [
                    {"level": "error", "message": {"text": printable(str(each))}}
                    for each in result.failures
                ],
            }
        ],
    }
    return json_text({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, 2)


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.code,
        "name": rule.name,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": flow(rule.page.what)},
        "help": {
            "text": f"{flow(rule.page.why)}\n\n{flow(rule.page.instead)}",
            "markdown": page(rule),
        },
        "defaultConfiguration": {
            "level": LEVELS[rule.severity],
            "enabled": not rule.opinion,
        },
        "properties": {"severity": rule.severity.value, "page": f"docs/rules/{file_name(rule)}"},
    }


def _one(found: RuleFinding, places: dict[str, int]) -> dict[str, Any]:
    rule = find_rule(found.code)
    assert rule is not None
    where = f"cell {found.cell} line {found.line}: " if found.cell is not None else ""
    return {
        "ruleId": found.code,
        "ruleIndex": places[found.code],
        "level": found.level,
        "rank": _RANKS[found.confidence.value],
        "message": {"text": printable(where + found.words)},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": _uri(found.path)},
                    "region": _region(found),
                },
                **_cell(found),
            }
        ],
        "properties": {
            "confidence": found.confidence.value,
            "severity": found.severity.value,
            "instead": found.instead,
        },
    }


def _region(found: RuleFinding) -> dict[str, int]:
    """Return the place in the file. Of a notebook that is JSON, whose lines nobody means: its first
    line, and the message and the logical location say which cell."""
    if found.cell is not None:
        return {"startLine": 1}
    return {
        "startLine": found.line,
        "startColumn": found.span.column + 1,
        "endLine": found.end_line,
        "endColumn": found.span.end_column + 1,
    }


def _cell(found: RuleFinding) -> dict[str, Any]:
    if found.cell is None:
        return {}
    return {"logicalLocations": [{"name": f"cell {found.cell}", "kind": "module"}]}


def _uri(path: Path) -> str:
    """Return the path as a URI, relative without dots if it is below this folder. Names that are no
    UTF-8 are quoted byte by byte."""
    plain = Path(os.path.normpath(path))
    if plain.is_absolute():
        return plain.as_uri()
    if plain.parts[:1] == ("..",):
        return Path(os.path.abspath(plain)).as_uri()
    return urllib.parse.quote(os.fsencode(plain))
