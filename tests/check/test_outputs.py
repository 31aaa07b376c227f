"""What programs and people read: SARIF, GitHub's commands, JSON, and the terminal."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from antifreeze.cli import main
from antifreeze.doctor.check.check_result import Failure, PlainFix, Result, RuleFinding, Span
from antifreeze.doctor.check.checker import check_text
from antifreeze.doctor.check.output.github_annotations import as_github
from antifreeze.doctor.check.output.json_output import as_json
from antifreeze.doctor.check.output.sarif import as_sarif
from antifreeze.doctor.check.output.terminal_text import MOST_FINDINGS_SHOWN, print_result
from antifreeze.doctor.findings import Confidence
from antifreeze.doctor.rules import all_rules
from antifreeze.doctor.rules.rule import Rule, Severity
from antifreeze.doctor.rules.rule_pages import advice

from ..patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
TEXT = """from torch.utils.data import DataLoader
loader = DataLoader("data", batch_size=4, prefetch_factor=2, persistent_workers=True)
wrong = DataLoader(missing)
"""
FAILED = Failure(Path("a.py"), "ValueError: no", "AF101")


def found(**changes: Any) -> RuleFinding:
    given: dict[str, Any] = {
        "path": Path("a b/ü.py"),
        "code": "AF704",
        "name": "arguments-that-exclude-each-other",
        "severity": Severity.CRASH,
        "confidence": Confidence.CERTAIN,
        "words": "50% of it, or: so\nand more",
        "span": Span(3, 4, 3, 9),
        "header": (3, 3),
        "source": "x = f(1, 2)",
    }
    return RuleFinding(**(given | changes))


def test_sarif_has_what_the_standard_requires() -> None:
    """By hand, from the text of SARIF 2.1.0: what is required, and which values there are."""
    cell = found(cell=3, cell_line=2)
    whole = json.loads(as_sarif(Result((found(), cell), 1, 3, (FAILED,))))
    assert set(whole) == {"$schema", "version", "runs"} and whole["version"] == "2.1.0"
    assert whole["$schema"].endswith("sarif-2.1.0.json")
    (run,) = whole["runs"]
    assert run["columnKind"] in ("utf16CodeUnits", "unicodeCodePoints")
    driver = run["tool"]["driver"]
    assert driver["name"] and driver["version"]
    assert [each["id"] for each in driver["rules"]] == [each.code for each in all_rules()]
    for rule in driver["rules"]:
        assert rule["name"] and rule["shortDescription"]["text"] and rule["fullDescription"]["text"]
        assert rule["help"]["text"] and rule["help"]["markdown"].startswith(f"# {rule['id']}")
        assert rule["defaultConfiguration"]["level"] in ("none", "note", "warning", "error")
        assert isinstance(rule["defaultConfiguration"]["enabled"], bool)
    assert len(run["results"]) == 2
    for result in run["results"]:
        assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("none", "note", "warning", "error") and result["message"]["text"]
        assert 0 <= result["rank"] <= 100
        (location,) = result["locations"]
        place = location["physicalLocation"]
        assert re.fullmatch(r"[A-Za-z0-9/._~%:-]+", place["artifactLocation"]["uri"])
    first, second = (each["locations"][0]["physicalLocation"]["region"] for each in run["results"])
    assert first == {"startLine": 3, "startColumn": 5, "endLine": 3, "endColumn": 10}
    assert second == {"startLine": 1}, "a notebook is JSON: lines of a cell are none of the file"
    assert run["results"][1]["message"]["text"].startswith("cell 3 line 2: ")
    assert run["results"][1]["locations"][0]["logicalLocations"][0]["name"] == "cell 3"
    (invocation,) = run["invocations"]
    assert invocation["executionSuccessful"] is False
    assert invocation["toolExecutionNotifications"][0]["message"]["text"]


def test_github_commands_are_one_line_each_with_their_signs_escaped() -> None:
    said = as_github(Result((found(path=Path("a,b:c%.py")), found(severity=Severity.SLOW)), 1))
    first, second, rest = said.split("\n")
    assert first == (
        "::error file=a%2Cb%3Ac%25.py,line=3,endLine=3,col=5,"
        "title=AF704 arguments-that-exclude-each-other (crash%2C certain)"
        "::50%25 of it, or: so%0Aand more"
    )
    assert second.startswith("::warning ") and not rest


def test_json_has_the_fields_that_its_page_names() -> None:
    whole = json.loads(as_json(Result((found(),), 1, 3)))
    page = (ROOT / "docs" / "check.md").read_text()
    for name in (*whole, *whole["findings"][0]):
        assert f'"{name}"' in page, f"docs/check.md does not name {name}"


def told(result: Result, width: int, monkeypatch: pytest.MonkeyPatch, *, terminal: bool) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)

    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return terminal

    screen = Screen()
    print_result(result, screen)
    return screen.getvalue()


@pytest.mark.parametrize("width", [100, 60])
def test_a_terminal_gets_lines_that_fit_it(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = TEXT + "x = '" + "y" * 200 + "'; late = DataLoader(nowhere)\n"
    out = told(check_text(text), width, monkeypatch, terminal=True)
    assert "\x1b[" in out
    bare = re.sub(r"\x1b\[[0-9;]*m", "", out).split("\n")
    assert max(map(cell_len, bare)) <= width, bare
    at = next(place for place, line in enumerate(bare) if " ... nowhere" in line)
    assert bare[at + 1].index("^") == bare[at].index("nowhere"), "the caret is under the name"


def test_every_finding_says_what_to_do_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    result = check_text(TEXT)
    out = told(result, 60, monkeypatch, terminal=False)
    assert out.count("    instead: ") == len(result.found) == 3
    assert all(each["instead"] for each in json.loads(as_json(result))["findings"])
    (run,) = json.loads(as_sarif(result))["runs"]
    assert all(each["properties"]["instead"] for each in run["results"])
    assert as_github(result).count("%0Ainstead: ") == 3


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.code)
def test_the_advice_of_a_rule_is_one_sentence(rule: Rule) -> None:
    text = advice(rule)
    assert text.endswith((".", "`", ":")) and "\n" not in text and len(text) <= 420, text


def test_a_pipe_gets_no_colours_and_a_sentence_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    out = told(check_text(TEXT), 60, monkeypatch, terminal=False)
    assert "\x1b" not in out
    assert "example.py:2:43: AF704 arguments-that-exclude-each-other (crash, certain)\n" in out
    assert "    3 | wrong = DataLoader(missing)\n      |                    ^^^^^^^\n" in out
    assert out.endswith(
        "3 found in 1 file: 3 crash; --fix mends 2. Why: antifreeze explain AF704\n"
    )


def test_nothing_found_is_one_friendly_line(monkeypatch: pytest.MonkeyPatch) -> None:
    out = told(check_text("x = 1\n"), 80, monkeypatch, terminal=True)
    assert out == "Nothing found in 1 file, 1 line.\n"


def test_very_many_findings_are_counted_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    out = told(Result((found(),) * 1000, 9), 100, monkeypatch, terminal=False)
    assert out.count("AF704 arguments") == MOST_FINDINGS_SHOWN
    assert "and 800 more" in out and "1,000 found in 9 files: 1,000 crash" in out


def test_words_that_look_like_markup_are_shown_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    one = found(words="`x[bold]` and [/] and :smile:", source="x[bold] = y['[red]']")
    out = told(Result((one,), 1), 100, monkeypatch, terminal=False)
    assert "`x[bold]` and [/] and :smile:." in out and "x[bold] = y['[red]']" in out


def test_no_color_is_heeded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")

    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Screen()
    print_result(check_text(TEXT), screen)
    assert "\x1b[3" not in screen.getvalue(), "no colours; bold and dim may stay"


def test_every_format_ends_with_the_same_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.py"
    for text, code in ((TEXT, 1), ("x = 1\n", 0)):
        path.write_text(text)
        for how in ("text", "json", "sarif", "github"):
            assert main(["check", str(path), "--format", how]) == code
    capsys.readouterr()


def test_columns_count_characters_also_where_there_is_no_node() -> None:
    allow = check_text("é漢 = 1  # antifreeze: allow[nonesuch]\n").found
    assert [(each.span.column, each.span.end_column) for each in allow] == [(8, 9)]
    assert json.loads(as_json(Result(allow)))["findings"][0]["column"] == 9
    broken = check_text("é漢 = = 2\n").found
    assert [each.span.column for each in broken] == [5]


def test_a_name_that_is_no_utf8_is_told_in_every_format(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"\xff\xe9.py")
    path.write_text(TEXT)
    for how in ("text", "json", "sarif", "github"):
        done = subprocess.run(
            [sys.executable, "-m", "antifreeze.cli", "check", str(path), "--format", how],
            capture_output=True,
            check=False,
            timeout=PATIENCE_S,
            env={**os.environ, "PYTHONIOENCODING": "utf-8:strict"},
        )
        assert done.returncode == 1 and not done.stderr
        if how == "sarif":
            assert b"/%FF%E9.py" in done.stdout


@pytest.mark.parametrize(
    ("path", "uri"), [("a/../b c.py", "b%20c.py"), ("./a.py", "a.py"), ("..a.py", "..a.py")]
)
def test_a_uri_has_no_dots(path: str, uri: str) -> None:
    def uris(path: str) -> list[str]:
        run = json.loads(as_sarif(Result((found(path=Path(path)),))))["runs"][0]
        places = [each["locations"][0]["physicalLocation"] for each in run["results"]]
        return [each["artifactLocation"]["uri"] for each in places]

    assert uris(path) == [uri]
    assert uris("../a.py") == [(Path.cwd().parent / "a.py").as_uri()]


def test_a_cell_has_no_fix_that_a_program_could_ask_for() -> None:
    fix = PlainFix("drop it", ())
    both = Result((found(fix=fix), found(fix=fix, cell=1, cell_line=1)))
    assert [each["fix"] for each in json.loads(as_json(both))["findings"]] == ["drop it", None]
