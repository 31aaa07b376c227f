"""One file: read, summarised (first pass), and looked at by the rules (second pass)."""

from __future__ import annotations

import ast
import bisect
import contextlib
import dataclasses
import functools
import itertools
import re
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..rules import Rule, find_rule
from ..rules.rule import CRASH, DropArgument, Edit, Fix, Hit, Replace, SetArgument, Wrap
from ..rules.rule_pages import advice
from ..source import known
from ..source.budget import TooEntangled
from ..source.evidence import is_expected_to_fail
from ..source.lines import split_lines
from ..source.module import Module, parse_module
from ..source.project import Project
from ..source.summary import Summary, summarise
from ..source.view import View
from .elsewhere import HitElsewhere, find_elsewhere
from .found import INSIDE, Failure, Found, PlainEdit, PlainFix, Span
from .reading import PYTHON, Source, Unreadable
from .settings import CANNOT_BE_READ, Settings
from .silencing import Allow, Allows, read_allows

WITHOUT_EFFECT = "AF002"
LONG = 1_000  # characters of a line; of longer ones it is kept at which byte each character starts
# A file without any of these words has nothing for us, unless a class of it is a dataset.
_MENTIONS = re.compile(
    r"DataLoader|dataloader|data_loader|torch\.utils|Dataset\b|__getitem__|Sampler|worker_init"
    r"|collate|TrainingArguments|set_start_method|init_process_group|DistributedDataParallel"
    r"|_NUM_THREADS|Accelerator\(|set_epoch|torch\.distributed|LOCAL_RANK|WORLD_SIZE|strategy=|antifreeze:"
)
_CLASSES = known.LOADERS | known.MAP_DATASETS | known.ITERABLE_DATASETS | known.LIGHTNING_MODULES


def parse(source: Source, name: str, *, is_package: bool, shallow: bool = False) -> Module:
    """Parse. Raises Unreadable if that cannot be done."""
    try:
        return parse_module(
            source.path,
            name,
            source.text,
            is_package=is_package,
            is_notebook=source.notebook is not None,
            is_whole=source.is_whole,
            shallow=shallow,
        )
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        words = f"this file cannot be read as {PYTHON}: {error}"
        raise Unreadable(words, is_syntax=isinstance(error, SyntaxError)) from None


def first_pass(source: Source, name: str, *, is_package: bool) -> tuple[Module | None, Summary]:
    """Parse and summarise one file by itself. Gives the module too, unless it was read shallowly,
    as most files are."""
    deep = _MENTIONS.search(source.text) is not None
    module = parse(source, name, is_package=is_package, shallow=not deep)
    summary = dataclasses.replace(
        summarise(module, is_package=is_package), is_mended=bool(source.faults)
    )
    if not deep:
        return None, summary
    summary = dataclasses.replace(summary, concerns_us=True)
    with contextlib.suppress(TooEntangled):  # the second pass meets it too, and says so
        whole = View(module, Project([summary])).summary
        summary = dataclasses.replace(summary, **_program_facts(whole))
    return module, summary


def _program_facts(whole: Summary) -> dict[str, Any]:
    return {
        "loaders": whole.loaders,
        "distributed": whole.distributed,
        "start_method": whole.start_method,
    }


def concerns_us(summary: Summary, project: Project) -> bool:
    """Say whether rules can find anything in a file: it speaks of loaders or datasets, or has a
    class that is one."""
    return summary.concerns_us or any(
        project.loaders_of(f"{summary.name}.{name}", summary.path)
        or not _CLASSES.isdisjoint(project.ancestors(f"{summary.name}.{name}", summary.path))
        for name in summary.classes
    )


def second_pass(
    module: Module, source: Source, project: Project, settings: Settings
) -> tuple[list[Found], list[Failure]]:
    """Let the rules look at a file. Gives what they found, and which of them failed, and how."""
    view = View(module, project)
    found: list[Found] = []
    elsewhere: list[tuple[Rule, HitElsewhere]] = []
    failures: list[Failure] = []
    rules = settings.rules_for(source.path)
    for rule in rules:
        try:
            hits = [hit for hit in rule.find(view) if module.holds(hit.node)]
            others = list(find_elsewhere(rule, view)) if rule.follows else []
            if rule.severity is CRASH:
                hits = [each for each in hits if not is_expected_to_fail(each.node, module)]
                others = [e for e in others if not is_expected_to_fail(e.hit.node, e.module)]
        except TooEntangled as error:  # nothing is left for the rules after this one
            failures.append(Failure(source.path, f"{error}; no rule after it was tried", rule.code))
            break
        except Exception as error:  # ours, not the program's: the other rules go on
            failures.append(Failure(source.path, in_words(error), rule.code))
            continue
        found += (as_found(rule, hit, source) for hit in hits)
        elsewhere += ((rule, each) for each in others)
    # An allow has its effect on what is found, whether it is shown or not.
    allows = read_allows(source.text)
    here = Allows(allows)
    left = here.silence(_once(found))
    left += _allowed_by_neither(elsewhere, source, here, settings)
    left = [each for each in left if settings.shows(each.confidence)]
    followed = bool(project.importers(source.path))
    left += _without_effect(allows, rules, source, strict=settings.strict, followed=followed)
    return left, failures


def _allowed_by_neither(
    elsewhere: list[tuple[Rule, HitElsewhere]],
    source: Source,
    allows: Allows,
    settings: Settings,
) -> Iterator[Found]:
    """Give what is found in other files, each once, unless the settings or a comment there allow
    it, or a comment at the place of this file that leads there."""
    there: dict[Path, Allows] = {}
    seen: set[tuple[Path, str, Span]] = set()
    for rule, each in elsewhere:
        found = as_found(rule, each.hit, each.source)
        if (key := (found.path, found.code, found.span)) in seen:
            continue
        seen.add(key)
        if rule not in settings.rules_for(found.path):
            continue
        if found.path not in there:
            there[found.path] = Allows(read_allows(each.source.text))
        here = as_found(rule, Hit(each.way, found.words), source)
        if allows.silence([here]) and there[found.path].silence([found]):
            yield found


def in_words(error: Exception) -> str:
    return f"{type(error).__name__}: {text_of_error(error)}".removesuffix(": ")


def text_of_error(error: Exception) -> str:
    """Return what an error says of itself; '' if that fails, as with one of libcst's whose text
    has a whole tree in it."""
    try:
        return str(error)
    except Exception:
        return ""


def _once(found: Iterable[Found]) -> Iterator[Found]:
    seen = set()
    for each in found:
        if (key := (each.code, each.span)) not in seen:
            seen.add(key)
            yield each


def as_found(rule: Rule, hit: Hit, source: Source) -> Found:
    span = _span(hit.node, source)
    fix = _plain(hit.fix, source) if hit.fix is not None else None
    found = _at(rule, source, hit.words, span)
    return dataclasses.replace(
        found,
        confidence=hit.confidence or rule.confidence,
        header=_header(hit.node, span),
        fix=fix,
    )


def at_place(rule: Rule, source: Source, words: str, line: int, column: int) -> Found:
    """Give a finding at a place without a node; the column counts characters."""
    return _at(rule, source, words, Span(line, column, line, column + 1))


def _at(rule: Rule, source: Source, words: str, span: Span) -> Found:
    cell, line = source.notebook.locate(span.line) if source.notebook else (None, None)
    lines = split_lines(source.text)
    return Found(
        path=source.path,
        code=rule.code,
        name=rule.name,
        severity=rule.severity,
        confidence=rule.confidence,
        words=words,
        span=span,
        header=(span.line, span.end_line),
        source=lines[span.line - 1] if span.line <= len(lines) else "",
        cell=cell,
        cell_line=line,
        instead=advice(rule),
    )


def _span(node: ast.AST, source: Source) -> Span:
    """Give where a node is. Columns of `ast` count bytes; ours count characters."""
    line: int = getattr(node, "lineno", 1)
    end_line: int = getattr(node, "end_lineno", None) or line
    lines = split_lines(source.text)

    def characters(number: int, column: int) -> int:
        text = lines[number - 1] if number <= len(lines) else ""
        return min(column, len(text)) if text.isascii() else _characters(text, column)

    start = characters(line, getattr(node, "col_offset", 0))
    end = characters(end_line, getattr(node, "end_col_offset", None) or 0)
    return Span(line, start, end_line, end)


def _characters(text: str, column: int) -> int:
    """Return how many characters of a line are in so many bytes of it."""
    if len(text) <= LONG:
        return len(text.encode()[:column].decode(errors="replace"))
    return min(bisect.bisect_left(_starts(text), column), len(text))


@functools.lru_cache(maxsize=2)  # every finding of a line asks for the same ones
def _starts(text: str) -> array[int]:
    """Return at which byte each character starts."""
    sizes = (1 if c < "\x80" else 2 if c < "\u0800" else 3 if c < "\U00010000" else 4 for c in text)
    return array("L", itertools.accumulate(sizes, initial=0))


def _header(node: ast.AST, span: Span) -> tuple[int, int]:
    """Give the lines that an allow may be on: all of an expression, but not a body. Decorators are
    a part of what they decorate."""
    first = _first_line(node, span.line)
    body = getattr(node, "body", None)
    if isinstance(body, list) and body and isinstance(node, ast.stmt | ast.ExceptHandler):
        return first, max(span.line, _first_line(body[0], span.line) - 1)
    return first, span.end_line


def _first_line(node: ast.AST, otherwise: int) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    lines = [getattr(node, "lineno", otherwise), *(each.lineno for each in decorators)]
    return int(min(lines))


def _plain(fix: Fix, source: Source) -> PlainFix:
    return PlainFix(fix.title, tuple(_plain_edit(each, source) for each in fix.edits))


def _plain_edit(edit: Edit, source: Source) -> PlainEdit:
    match edit:
        case SetArgument():
            return PlainEdit("set-argument", _span(edit.call, source), edit.name, edit.code)
        case DropArgument():
            return PlainEdit("drop-argument", _span(edit.call, source), edit.name)
        case Replace():
            kind = "replace-statement" if isinstance(edit.node, ast.stmt) else "replace"
            return PlainEdit(kind, _span(edit.node, source), code=edit.code)
        case Wrap():
            code = f"{edit.before}{INSIDE}{edit.after}"
            return PlainEdit("wrap", _span(edit.node, source), code=code)


def _without_effect(
    allows: list[Allow],
    rules: tuple[Rule, ...],
    source: Source,
    *,
    strict: bool,
    followed: bool,
) -> Iterator[Found]:
    """Report allows of rules that do not exist, and under `strict` those that silence nothing.
    `followed`: others import this file, and may lead to what they silence."""
    about = next((rule for rule in rules if rule.code == WITHOUT_EFFECT), None)
    if about is None:
        return
    looked = {rule.code for rule in rules if not (followed and rule.follows)}
    for allow in allows:
        for word, code in allow.codes.items():
            if code is None:
                words = f"there is no rule {word!r} to allow"
            elif strict and code in looked and code not in allow.used:
                words = f"nothing here needs `allow[{word}]`"
            else:
                continue
            yield at_place(about, source, words, allow.line, allow.column)


def unreadable(source: Source, error: Unreadable) -> Found:
    """Give the finding about a file, or a part of it, that cannot be read."""
    rule = find_rule(CANNOT_BE_READ)
    assert rule is not None
    shown = dataclasses.replace(source, text=source.original or source.text)
    return at_place(rule, shown, str(error), error.line, error.column)
