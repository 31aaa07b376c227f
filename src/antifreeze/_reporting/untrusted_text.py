"""Make text of others safe to show: file names, source lines, command lines, answers.

1. No control character, bidirectional override or lone surrogate reaches a terminal or a log. Each
   is shown as Python writes it (`\\x1b`), so that nothing is lost and nothing is hidden.
2. No such text starts a command of a CI service: `::error::` (GitHub), `##vso[` (Azure Pipelines),
   `##teamcity[`. Services look for these in everything that a job prints.

Every verb of the command line and every report prints through this module.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.text import Text

CUT = " ... "
# GitHub and Azure find `##[...]` and `##vso[...]` anywhere in a line.
_SERVICE_COMMAND = re.compile(r"#(?=#\w*\[)")


def printable(text: str, most: int | None = None) -> str:
    """Return a text as one line that can be shown; the middle is left out of one that is longer
    than `most` characters."""
    if most is not None and len(text) > most:
        half = max(1, (most - len(CUT)) // 2)
        text = f"{text[:half]}{CUT}{text[-half:]}"
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _escaped(each) for each in text)


def printable_lines(text: str) -> str:
    """Return a text of several lines that can be shown: line ends and tabs stay."""
    lines = ("\t".join(as_log_line(part) for part in line.split("\t")) for line in text.split("\n"))
    return "\n".join(lines)


def as_log_line(text: str) -> str:
    """Return a whole line that can be shown, and that no CI service takes for a command."""
    line = printable(text)
    bare = line.lstrip()
    if bare.startswith("::"):
        line = f"{line[: len(line) - len(bare)]}\\{bare}"
    return _SERVICE_COMMAND.sub(r"#\\", line) if "##" in line else line


def json_text(data: Any, indent: int | None = None) -> str:
    """Return JSON that can be printed: ASCII, its values exact, and no command of a CI service."""
    return json.dumps(data, indent=indent).replace("##", "#\\u0023")


def styled_line(*parts: str | tuple[str, str]) -> Text:
    """Return a line for a console of rich's: texts, or texts with their style. No text is taken for
    markup or for the name of an emoji."""
    from rich.text import Text

    shown = [(each, "") if isinstance(each, str) else each for each in parts]
    safe = [(printable(text), style) for text, style in shown]
    whole = "".join(text for text, _ in safe)
    if as_log_line(whole) != whole:  # no harm to lose the colours of a line that pretends
        return Text(as_log_line(whole))
    return Text.assemble(*safe)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", errors="surrogatepass").decode("ascii")
