"""One file: read, summarised (first pass), and looked at by the rules (second pass)."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import re
from collections.abc import Iterable, Iterator
from typing import Any

from ..rules import Rule, find_rule
from ..rules.base import CRASH, AddImport, DropArgument, Edit, Fix, Hit, Replace, SetArgument
from ..source import known
from ..source.budget import TooEntangled
from ..source.evidence import is_expected_to_fail
from ..source.module import Module, parse_module
from ..source.project import Project
from ..source.summary import Summary, summarise
from ..source.view import View
from .found import Found, PlainEdit, PlainFix, Span
from .reading import PYTHON, Source, Unreadable
from .settings import Settings
from .silencing import Allow, read_allows, silence

CANNOT_BE_READ, WITHOUT_EFFECT = "AF001", "AF002"
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
        raise Unreadable(f"this file cannot be read as {PYTHON}: {error}") from None


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
) -> tuple[list[Found], list[str]]:
    """Let the rules look at a file. Gives what they found, and which of them failed, and how."""
    view = View(module, project)
    found: list[Found] = []
    failures: list[str] = []
    rules = settings.rules_for(source.path)
    for rule in rules:
        try:
            hits = [hit for hit in rule.find(view) if module.holds(hit.node)]
            if rule.severity is CRASH:
                hits = [each for each in hits if not is_expected_to_fail(each.node, module)]
        except TooEntangled as error:  # nothing is left for the rules after this one
            failures.append(f"{rule.code} {source.path}, and all after it: {error}")
            break
        except Exception as error:  # ours, not the program's: the other rules go on
            failures.append(f"{rule.code} {source.path}: {type(error).__name__}: {error}")
            continue
        found += (as_found(rule, hit, source) for hit in hits)
    found = [each for each in _once(found) if settings.shows(each.confidence)]
    allows = read_allows(source.text)
    left = silence(found, allows)
    left += _without_effect(allows, rules, source, strict=settings.strict)
    return left, failures


def _once(found: Iterable[Found]) -> Iterator[Found]:
    seen = set()
    for each in found:
        if (key := (each.code, each.span)) not in seen:
            seen.add(key)
            yield each


def as_found(rule: Rule, hit: Hit, source: Source) -> Found:
    span = _span(hit.node, source)
    cell, line = source.notebook.locate(span.line) if source.notebook else (None, None)
    lines = source.text.split("\n")
    return Found(
        path=source.path,
        code=rule.code,
        name=rule.name,
        severity=rule.severity,
        confidence=hit.confidence or rule.confidence,
        words=hit.words,
        span=span,
        header=_header(hit.node, span),
        source=lines[span.line - 1].rstrip("\r") if span.line <= len(lines) else "",
        cell=cell,
        cell_line=line,
        fix=_plain(hit.fix, source) if hit.fix is not None else None,
    )


def _span(node: ast.AST, source: Source) -> Span:
    """Give where a node is. Columns of `ast` count bytes; ours count characters."""
    line: int = getattr(node, "lineno", 1)
    end_line: int = getattr(node, "end_lineno", None) or line
    lines = source.text.split("\n")

    def characters(number: int, column: int) -> int:
        text = lines[number - 1] if number <= len(lines) else ""
        return len(text.encode()[:column].decode(errors="replace"))

    start = characters(line, getattr(node, "col_offset", 0))
    end = characters(end_line, getattr(node, "end_col_offset", None) or 0)
    return Span(line, start, end_line, end)


def _header(node: ast.AST, span: Span) -> tuple[int, int]:
    """Give the lines that an allow may be on: all of an expression, but not a body."""
    body = getattr(node, "body", None)
    if isinstance(body, list) and body and isinstance(node, ast.stmt | ast.ExceptHandler):
        return span.line, max(span.line, body[0].lineno - 1)
    return span.line, span.end_line


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
        case AddImport():
            return PlainEdit("add-import", Span(1, 0, 1, 0), edit.name, edit.module)


def _without_effect(
    allows: list[Allow], rules: tuple[Rule, ...], source: Source, *, strict: bool
) -> Iterator[Found]:
    """Report allows of rules that do not exist, and under `strict` those that silence nothing."""
    about = next((rule for rule in rules if rule.code == WITHOUT_EFFECT), None)
    if about is None:
        return
    looked = {word for rule in rules for word in (rule.code, rule.name)}
    for allow in allows:
        for name in allow.names:
            if find_rule(name) is None:
                words = f"there is no rule {name!r} to allow"
            elif strict and name in looked and name not in allow.used:
                words = f"nothing here needs `allow[{name}]`"
            else:
                continue
            yield at_place(about, source, words, allow.line, allow.column)


def at_place(rule: Rule, source: Source, words: str, line: int, column: int) -> Found:
    """Give a finding at a place without a node."""
    node = ast.Pass(lineno=line, col_offset=column, end_lineno=line, end_col_offset=column + 1)
    return as_found(rule, Hit(node, words), source)


def unreadable(source: Source, error: Unreadable) -> Found:
    """Give the finding about a file, or a part of it, that cannot be read."""
    rule = find_rule(CANNOT_BE_READ)
    assert rule is not None
    shown = dataclasses.replace(source, text=source.original or source.text)
    return at_place(rule, shown, str(error), error.line, error.column)
