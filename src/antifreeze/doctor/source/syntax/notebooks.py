"""Notebooks: join the code cells into one text, and map its lines back to the cells."""

from __future__ import annotations

import ast
import bisect
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .line_splitting import split_lines
from .safe_compile import compile_quietly

_MAGIC = re.compile(
    r"^(\s*)(%{1,2}[A-Za-z_]|!|\?)|^(\s*)[\w.]+\?{1,2}\s*$|^()(pip|conda) install\b"
)
# files = !ls; each part keeps what it has taken: a line of spaces would take their square
_SHELL = re.compile(r"^(\s*+[\w, ]++=\s*+)(!|%[A-Za-z_])")
# Cell magics whose cell is still Python, and those that surely bind no name.
_STILL_PYTHON = ("%%time", "%%timeit", "%%capture", "%%prun", "%%python3")
_BIND_NOTHING = frozenset(
    {"bash", "sh", "script", "html", "HTML", "javascript", "js", "latex", "markdown", "svg", "SVG"}
    | {"writefile", "file", "perl", "ruby", "system", "sx", "cmd"}
)
# These bring names from elsewhere: another notebook, a store, all of numpy.
_BRING_NAMES = re.compile(r"^\s*%(run|pylab|store|load|rerun|recall|macro)\b|^%%capture\s+\w")
# What the host of a notebook (IPython, Databricks, Synapse) has there before the first cell.
HOST_NAMES = frozenset(
    {"get_ipython", "display", "In", "Out", "_", "__", "___", "exit", "quit"}
    | {"spark", "sc", "sqlContext", "dbutils", "displayHTML", "mssparkutils", "notebookutils"}
)


@dataclass(frozen=True, slots=True)
class Notebook:
    """The text of all code cells. Of each cell: the lines before it, and its number."""

    text: str
    cells: tuple[tuple[int, int], ...]
    is_whole: bool = True  # False: names may come from where we cannot see

    def locate(self, line: int) -> tuple[int, int]:
        """Return the cell and the line in it of a line of the text."""
        place = bisect.bisect_left(self.cells, (line, 0)) - 1
        before, number = self.cells[place] if place >= 0 else (0, 1)
        return number, line - before

    def extents(self) -> list[tuple[int, int]]:
        """Return the lines of each cell: from, and to (not included), from 0."""
        starts = [start for start, _ in self.cells]
        return list(zip(starts, [*starts[1:], self.text.count("\n")], strict=True))


def read_notebook(text: str) -> Notebook:
    """Read an .ipynb file; one of another language has no cells. Raise ValueError for none."""
    try:
        whole = json.loads(text)
        sources = list(_sources(whole)) if _is_python(whole) else []
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"no notebook: {error!r}") from None
    lines: list[str] = []
    starts: list[tuple[int, int]] = []
    for number, source in sources:
        starts.append((len(lines), number))
        lines += _python(source)
    is_whole = not any(_brings_names(source) for _, source in sources)
    return Notebook("\n".join(lines) + "\n", tuple(starts), is_whole)


def _is_python(whole: dict[str, Any]) -> bool:
    """Whether its kernel is one of Python, or nothing is said of it."""
    about = whole.get("metadata") or {}
    kernel, language = about.get("kernelspec") or {}, about.get("language_info") or {}
    word = kernel.get("language") or language.get("name") or "python"
    return str(word).lower() in ("python", "python3", "ipython", "pyspark")


def _sources(whole: dict[str, Any]) -> Iterator[tuple[int, str]]:
    """Yield the code cells, with their numbers among all cells. Before nbformat 4 cells were in
    worksheets, and code was `input`."""
    cells = whole["cells"] if "worksheets" not in whole else _of_worksheets(whole["worksheets"])
    for number, cell in enumerate(cells, start=1):
        if cell.get("cell_type") == "code":
            yield number, "".join(cell["source"] if "source" in cell else cell["input"])


def _of_worksheets(sheets: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [cell for sheet in sheets for cell in sheet["cells"]]


def _brings_names(source: str) -> bool:
    cell_magic = re.match(r"\s*%%(\w+)", source)
    if cell_magic is not None and not source.lstrip().startswith(_STILL_PYTHON):
        return cell_magic[1] not in _BIND_NOTHING
    return any(_BRING_NAMES.match(line) for line in split_lines(source))


def _python(source: str) -> list[str]:
    """Return the lines of a cell with magics put out of the way; each line stays in its place."""
    lines = _dedented(list(split_lines(source)))
    first = next((line for line in lines if line.strip()), "")
    if first.startswith("%%") and not first.startswith(_STILL_PYTHON):
        return ["" for _ in lines]
    if _compiles("\n".join(lines)):
        return lines  # what looks like a magic is none: the second line of `"%s" \n % x`
    tamed: list[str] = []
    goes_on = False  # a command of several lines: `!pip install \`
    for line in lines:
        new = "" if goes_on else _tame(line)
        goes_on = (goes_on or new != line) and line.rstrip().endswith("\\")
        tamed.append(new)
    return tamed


def _dedented(lines: list[str]) -> list[str]:
    """Remove the indentation of the first line from all, as IPython does: such a cell runs."""
    indent = re.match(r"[ \t]*", lines[0])
    width = len(indent[0]) if indent is not None and lines[0].strip() else 0
    return [line[width:] if line[:width].isspace() else line for line in lines] if width else lines


def _tame(line: str) -> str:
    magic = _MAGIC.match(line)
    if magic is not None:
        return f"{magic[1] or magic[3] or ''}pass"
    shell = _SHELL.match(line)
    return f"{shell[1]}None" if shell is not None else line


def _compiles(text: str) -> bool:
    try:
        compile_quietly(text, ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
