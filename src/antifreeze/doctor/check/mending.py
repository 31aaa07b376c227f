"""Files after their fixes: read and written as they are (encoding, byte order mark, line ends), in
rounds, until nothing is left to fix. Only what still compiles is kept."""

from __future__ import annotations

import io
import tokenize
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .fixes import Fixed, fix_text
from .found import Found, Result
from .running import check
from .settings import Settings

ROUNDS = 4  # a fix may wait for one that it overlaps; more rounds than that are a quarrel of rules
BOM = "\ufeff"


@dataclass(slots=True)
class Mended:
    """What fixes did."""

    result: Result  # what is left
    before: dict[Path, str] = field(default_factory=dict)  # of the files that changed
    after: dict[Path, str] = field(default_factory=dict)
    applied: int = 0
    notebooks: tuple[Path, ...] = ()  # with findings that could be fixed; they are never changed


def mend(
    result: Result,
    files: list[Path],
    settings: Settings,
    texts: Mapping[Path, str] | None = None,
    *,
    write: bool = False,
) -> Mended:
    """Apply fixes to texts, or to files if `write`. Raises fixes.CannotFix without libcst."""
    done = Mended(result, notebooks=_notebooks(result))
    given = dict(texts or {})
    for _ in range(ROUNDS):
        changed = _round(done, given)
        if not changed:
            break
        if write:
            for path in changed:
                _write(path, done.after[path])
            done.result = check(files, settings)
        else:
            again = check(list(changed), settings, {**given, **done.after})
            others = [each for each in done.result.found if each.path not in changed]
            found = tuple(sorted([*others, *again.found], key=lambda each: each.order))
            done.result = Result(found, result.files, result.lines, result.failures)
    return done


def _round(done: Mended, given: Mapping[Path, str]) -> list[Path]:
    by_path: dict[Path, list[Found]] = {}
    for each in done.result.found:
        if each.fix is not None and each.cell is None:
            by_path.setdefault(each.path, []).append(each)
    changed = []
    for path, found in by_path.items():
        text = done.after[path] if path in done.after else given.get(path)
        if text is None:
            text = read_exactly(path)
        fixed = _fixed(text, found)
        if fixed.applied:
            done.before.setdefault(path, text)
            done.after[path] = fixed.text
            done.applied += len(fixed.applied)
            changed.append(path)
    return changed


def _fixed(text: str, found: list[Found]) -> Fixed:
    """Fix a text; keep it as it was if what comes out is no Python."""
    mark = BOM if text.startswith(BOM) else ""
    fixed = fix_text(text.removeprefix(BOM), found)
    try:
        compile(fixed.text, "fixed", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return Fixed(text, ())
    return Fixed(mark + fixed.text, fixed.applied)


def _notebooks(result: Result) -> tuple[Path, ...]:
    found = (each.path for each in result.found if each.fix is not None and each.cell is not None)
    return tuple(dict.fromkeys(found))


def read_exactly(path: Path) -> str:
    """Read a file with its line ends, and with its byte order mark."""
    data = path.read_bytes()
    return data.decode(_encoding(data))


def _write(path: Path, text: str) -> None:
    path.write_bytes(text.encode(_encoding(path.read_bytes())))


def _encoding(data: bytes) -> str:
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    return "utf-8" if encoding == "utf-8-sig" else encoding  # the mark is a character of the text
