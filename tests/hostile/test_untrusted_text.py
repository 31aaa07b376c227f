"""No text of others means anything to a terminal, a log or a CI service."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from antifreeze._reporting.untrusted_text import (
    as_log_line,
    printable,
    printable_lines,
    styled_line,
)

TERMINAL = "\x1b]0;owned\x07\x1b[2J"
ANYTHING = st.text(st.characters(), max_size=60)  # surrogates and controls included


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain words, ünïcode ✓", "plain words, ünïcode ✓"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\nb\r\x0c\x85", "a\\nb\\r\\x0c\\x85"),
        ("evil\u202egnp.py", "evil\\u202egnp.py"),
        ("zero\u200bwidth", "zero\\u200bwidth"),
        ("\udc80 of no encoding", "\\udc80 of no encoding"),
        ("\U000e0001tag", "\\U000e0001tag"),
    ],
)
def test_what_is_not_printable_is_shown_as_python_writes_it(raw: str, shown: str) -> None:
    assert printable(raw) == shown


def test_a_long_text_keeps_its_beginning_and_its_end() -> None:
    assert printable("a" * 50 + "b" * 50, 25) == "a" * 10 + " ... " + "b" * 10
    assert printable("short", 25) == "short"


@pytest.mark.parametrize(
    "line",
    [
        "::error file=x::owned",
        "   ::stop-commands::token",
        "name ##vso[task.setvariable]owned",
        "##[add-mask]a",
        "##teamcity[buildStatus]",
        "###[group]x",
    ],
)
def test_no_line_is_a_command_of_a_ci_service(line: str) -> None:
    shown = as_log_line(line)
    assert not shown.lstrip().startswith("::")
    assert re.search(r"##\w*\[", shown) is None


@given(ANYTHING)
def test_whatever_it_is_it_can_be_printed_and_encoded(text: str) -> None:
    for shown in (printable(text), as_log_line(text), *printable_lines(text).split("\n")):
        assert shown.replace("\t", " ").isprintable()
        shown.encode()
    assert as_log_line(as_log_line(text)) == as_log_line(text)


@given(st.lists(ANYTHING, max_size=4))
def test_a_console_gets_nothing_but_what_is_printable(texts: list[str]) -> None:
    file = io.StringIO()
    console = Console(file=file, highlight=False, width=10_000)
    console.print(styled_line("[red]:bomb:", *((each, "bold") for each in texts)))
    assert file.getvalue().removesuffix("\n").isprintable()
    assert "bomb" in file.getvalue()
    assert "[red]" in file.getvalue()


def test_colours_of_ours_are_kept_and_those_of_others_are_shown() -> None:
    file = io.StringIO()
    Console(file=file, force_terminal=True, color_system="standard", width=200).print(
        styled_line(("ours", "bold"), " ", TERMINAL)
    )
    assert "\x1b[1mours\x1b[0m" in file.getvalue()
    assert "\\x1b]0;owned\\x07" in file.getvalue()
    assert file.getvalue().count("\x1b") == 2
