"""Findings as SARIF 2.1.0, which code scanning services read."""

from __future__ import annotations

import importlib.metadata
import json
import urllib.parse
from pathlib import Path
from typing import Any

from ..._version import VERSION
from ..rules import all_rules, find_rule
from ..rules.base import Rule
from ..rules.pages import file_name, flow, page
from .found import Found, Result

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {"freeze": "error", "crash": "error", "wrong data": "error", "slow": "warning"}
_RANKS = {"certain": 95.0, "likely": 75.0, "possible": 40.0}  # SARIF's `rank`: 0 to 100


def as_sarif(result: Result) -> str:
    rules = list(all_rules())
    home = _home()
    places = {rule.code: place for place, rule in enumerate(rules)}
    driver = {
        "name": "antifreeze check",
        "version": VERSION,
        "rules": [_rule(each, home) for each in rules],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_one(each, places) for each in result.found],
        "invocations": [
            {
                "executionSuccessful": not result.failures,
                "toolExecutionNotifications": [
                    {"level": "error", "message": {"text": each}} for each in result.failures
                ],
            }
        ],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def _home() -> str:
    """Give where the pages are on the web, as the installed package says; '' if it does not."""
    try:
        urls = importlib.metadata.metadata("antifreeze").get_all("Project-URL") or []
    except importlib.metadata.PackageNotFoundError:
        return ""
    named: dict[str, str] = dict(str(each).split(", ", 1) for each in urls if ", " in each)
    return named.get("Documentation", "").rstrip("/")


def _rule(rule: Rule, home: str) -> dict[str, Any]:
    page_path = f"docs/rules/{file_name(rule)}"
    found = {
        "id": rule.code,
        "name": rule.name,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": flow(rule.what)},
        "help": {"text": f"{flow(rule.why)}\n\n{flow(rule.instead)}", "markdown": page(rule)},
        "defaultConfiguration": {
            "level": _LEVELS[rule.severity.value],
            "enabled": not rule.opinion,
        },
        "properties": {"severity": rule.severity.value, "page": page_path},
    }
    return found | ({"helpUri": f"{home}/{page_path}"} if home else {})


def _one(found: Found, places: dict[str, int]) -> dict[str, Any]:
    rule = find_rule(found.code)
    assert rule is not None
    line = found.cell_line or found.span.line
    where = f"cell {found.cell}: " if found.cell is not None else ""
    return {
        "ruleId": found.code,
        "ruleIndex": places[found.code],
        "level": _LEVELS[found.severity.value],
        "rank": _RANKS[found.confidence.value],
        "message": {"text": where + found.words},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": _uri(found.path)},
                    "region": {
                        "startLine": line,
                        "startColumn": found.span.column + 1,
                        "endLine": line + found.span.end_line - found.span.line,
                        "endColumn": found.span.end_column + 1,
                    },
                },
                **_cell(found),
            }
        ],
        "properties": {"confidence": found.confidence.value, "severity": found.severity.value},
    }


def _cell(found: Found) -> dict[str, Any]:
    """Say which cell a line is counted in: SARIF knows no notebooks."""
    if found.cell is None:
        return {}
    return {"logicalLocations": [{"name": f"cell {found.cell}", "kind": "module"}]}


def _uri(path: Path) -> str:
    return path.as_uri() if path.is_absolute() else urllib.parse.quote(path.as_posix())
