"""Apply fixes to files in rounds, until nothing is left to fix.

1. Only what still compiles is kept.
2. Encoding, byte order mark and line ends stay as they are. What cannot be written as it was, byte
   by byte, is left alone and named.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..source.syntax.line_splitting import LINE_END
from ..source.syntax.safe_compile import compile_quietly
from .check_result import Result, RuleFinding
from .checker import check, rare_garbage_collection
from .error_text import describe_error, error_message
from .files.atomic_write import replace_file
from .files.source_reader import MOST_SOURCE_BYTES, read_bytes
from .files.text_encoding import BOM, Decoded, decode
from .libcst_fixes import CannotFix, FixedText, fix_text
from .settings import Settings

# A fix may wait for one that it overlaps; more rounds than that are a quarrel of rules.
MOST_FIX_ROUNDS = 4


@dataclass(slots=True)
class FixResult:
    """What fixes did."""

    result: Result  # what is left
    before: dict[Path, str] = field(default_factory=dict)  # of the files that changed
    after: dict[Path, str] = field(default_factory=dict)
    applied: int = 0
    notebooks: tuple[Path, ...] = ()  # with findings that could be fixed; they are never changed
    refused: dict[Path, str] = field(default_factory=dict)  # files that cannot be mended, and why


def apply_fixes(
    result: Result,
    files: list[Path],
    settings: Settings,
    texts: Mapping[Path, Decoded] | None = None,
    *,
    write: bool = False,
) -> FixResult:
    """Apply fixes to texts, or to files if `write`. Raise CannotFix without libcst."""
    done = FixResult(result, notebooks=_notebooks(result))
    given = dict(texts or {})
    for _ in range(MOST_FIX_ROUNDS):
        with rare_garbage_collection():
            changed = _apply_round(done, given, settings.named, write=write)
        if not changed:
            break
        if write:
            done.result = check(files, settings)
        else:
            as_texts = {path: each.text for path, each in given.items()}
            again = check(changed, settings, as_texts | done.after)
            others = [each for each in done.result.found if each.path not in changed]
            found = tuple(sorted([*others, *again.found], key=lambda each: each.order))
            done.result = dataclasses.replace(result, found=found)
    return done


def _apply_round(
    done: FixResult, given: Mapping[Path, Decoded], named: Sequence[Path], *, write: bool
) -> list[Path]:
    """Mend each file once. Return those that changed; what goes wrong with one is noted of it."""
    by_path: dict[Path, list[RuleFinding]] = {}
    for each in done.result.found:
        if each.can_be_fixed and each.path not in done.refused:
            by_path.setdefault(each.path, []).append(each)
    changed = []
    for path, found in by_path.items():
        try:
            if _fix_file(done, path, found, given.get(path), named, write=write):
                changed.append(path)
        except CannotFix:
            raise
        except (OSError, ValueError) as error:
            done.refused[path] = error_message(error)
        except Exception as error:  # ours, or libcst's: the other files are mended
            done.refused[path] = describe_error(error)
    return changed


def _fix_file(
    done: FixResult,
    path: Path,
    found: list[RuleFinding],
    given: Decoded | None,
    named: Sequence[Path],
    *,
    write: bool,
) -> bool:
    """Mend a file once, and return whether it changed. Raise OSError, or ValueError in words."""
    decoded = given or decode(read_bytes(path, MOST_SOURCE_BYTES, named))
    if not decoded.encoding:
        raise ValueError(f"it is not mended: {decoded.problem}")
    text = done.after.get(path, decoded.text)
    fixed = _fixed(text, found)
    if fixed.text == text:
        return False
    data = decoded.encoded(fixed.text)
    if write:
        replace_file(path, data, named)
    done.before.setdefault(path, text)
    done.after[path] = fixed.text
    done.applied += len(fixed.applied)
    return True


def _fixed(text: str, found: list[RuleFinding]) -> FixedText:
    """Fix a text; keep it as it was if what comes out is no Python."""
    mark = BOM if text.startswith(BOM) else ""
    ends = set(LINE_END.findall(text))
    old = len(ends) == 1 and "\r" in ends
    if "\r" in ends and not old:
        return FixedText(text, ())  # some of its lines end as on an old Mac: libcst loses such ends
    bare = text.removeprefix(BOM)
    fixed = fix_text(bare.replace("\r", "\n") if old else bare, found)
    if old:
        fixed = FixedText(fixed.text.replace("\n", "\r"), fixed.applied)
    try:
        compile_quietly(fixed.text)
    except (SyntaxError, ValueError):
        return FixedText(text, ())
    return FixedText(mark + fixed.text, fixed.applied)


def _notebooks(result: Result) -> tuple[Path, ...]:
    found = (each.path for each in result.found if each.fix is not None and each.cell is not None)
    return tuple(dict.fromkeys(found))
