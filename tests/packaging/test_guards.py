"""What guards the project runs: the check before the tests, and the same tools before a commit."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOOLS = ("ruff format", "ruff check", "codespell")


def rule_of(target: str) -> str:
    return (ROOT / "Makefile").read_text().partition(f"\n{target}:")[2].partition("\n\n")[0]


def test_ci_checks_and_then_tests() -> None:
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    assert lines[-2:] == ["make check", "make test"]
    assert "set -euo pipefail" in lines


def test_the_check_formats_lints_spells_and_types() -> None:
    rule = rule_of("check")
    for tool in (*TOOLS, "mypy"):
        assert f"@$(BIN)/{tool}" in rule, tool
    assert "-@" not in rule and "|| true" not in rule  # what fails ends it


def test_mypy_reads_no_tests_so_that_they_have_no_words_for_it() -> None:
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    assert table["files"] == ["src"] and table["strict"] is True
    words = "# type: " + "ignore"
    files = [*(ROOT / "tests").rglob("*.py")]
    assert len(files) > 300
    assert [str(each) for each in files if words in each.read_text()] == []
    assert f"! grep -rn '{words}' tests" in rule_of("check")


def test_hooks_before_a_commit_are_the_tools_of_the_check_and_fetch_nothing() -> None:
    text = (ROOT / ".pre-commit-config.yaml").read_text()
    assert re.findall(r"^ +entry: \.venv/bin/(.+)$", text, re.MULTILINE) == [
        "ruff format --force-exclude",
        "ruff check --force-exclude",
        "codespell",
    ]
    assert re.findall(r"^ *-? *repo: (.+)$", text, re.MULTILINE) == ["local"]
    assert text.count("language: system") == 3 and "://" not in text
