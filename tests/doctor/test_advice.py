"""No advice of `antifreeze attach` may hurt a program that is alive.

The processes of a program talk through pipes, sockets and named pipes. Whoever else reads from one,
writes into it or closes it breaks the program: a worker that was unpickling its dataset was told to
be stuck, and the advice to `cat` its pipe destroyed the run. So no text names such a command.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from antifreeze.doctor.attach import causes
from antifreeze.doctor.attach.causes import all_causes
from antifreeze.doctor.attach.diagnose import diagnose
from antifreeze.doctor.attach.facts import Case

CASES = Path(__file__).parent / "cases"
PAGES = Path(__file__).parent.parent.parent / "docs" / "hangs"
SOURCES = sorted(Path(next(iter(causes.__path__))).glob("*.py"))
TOUCHES = re.compile(
    r"/proc/\S*/fd\b"  # whatever is done with it, it is somebody's descriptor
    r"|\b(?:timeout \d+ )?(?:cat|dd|tee|od|xxd|head|tail -c|socat|nc)\s+(?:if=|of=)?[/<{]"
    r"|\b(?:echo|printf)\b[^.]*>"
    r"|\bexec \d*[<>]"
    r"|\bgdb\b|\bptrace\b|\bnsenter\b|\breptyr\b"
    r"|\bfuser\b[^.]*\s-\w*k"
    r"|\brm\s+-?\w*\s*[/{]"
    r"|\bss\b[^.]*\s-\w*K"
    r"|(?:^|[.:;] )[Ww]rite (?:to|into) the pipe\b"
)
# What a line of advice may begin with, if it is a command: all of them look, or send a signal.
COMMANDS = (
    *("kill", "antifreeze attach", "sudo antifreeze attach", "ps", "grep", "df", "ss -tunp"),
    *("timeout 5 ls", "prlimit", "docker update"),
)


def texts(tree: ast.AST) -> Iterator[str]:
    """Yield every string of a file, with `{}` where something is put in."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [each.value if isinstance(each, ast.Constant) else "{}" for each in node.values]
            yield "".join(str(each) for each in parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_no_cause_has_a_text_that_touches_a_descriptor(path: Path) -> None:
    found = [each for each in texts(ast.parse(path.read_text())) if TOUCHES.search(each)]
    assert not found


def test_no_page_tells_to_touch_a_descriptor() -> None:
    pages = {each.name: each.read_text() for each in PAGES.glob("*.md")}
    assert len(pages) >= len(all_causes())
    assert not [name for name, text in pages.items() if TOUCHES.search(text)]


@pytest.mark.parametrize("path", sorted(CASES.glob("*.json")), ids=lambda path: path.stem)
def test_advice_in_a_case_only_looks_or_sends_signals(path: Path) -> None:
    for answer in diagnose(Case.from_json(path.read_text())):
        for finding in answer.findings:
            assert not [each for each in finding.get_out if TOUCHES.search(each)]
            for line in finding.get_out:
                command, _, explained = line.partition("    (")
                if explained:
                    assert command.split(": ")[-1].startswith(COMMANDS), line


@pytest.mark.parametrize(
    "text",
    [
        "timeout 60 cat /proc/17/fd/1 > /dev/null",
        "read in its place: `cat /proc/PID/fd/1 > /dev/null`",
        "dd if=/tmp/pipe of=/dev/null",
        "echo go > /tmp/pipe",
        "Write to the pipe, or end the worker",
        "fuser -k /data/lock",
        "gdb -p 17",
    ],
)
def test_the_search_finds_what_it_should(text: str) -> None:
    assert TOUCHES.search(text)
