"""Check one file: parse and summarise it (first pass), then run the rules on it (second pass)."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..rules import Rule
from ..rules.rule import CRASH, Hit
from ..source import library_names
from ..source.file_summary import Summary, summarise
from ..source.program_facts import is_expected_to_fail
from ..source.project import Project
from ..source.step_budget import StepBudgetExceeded
from ..source.syntax.module import Module, parse_module
from ..source.view import View
from .allow_comments import Allow, Allows, read_allows
from .check_result import Failure, RuleFinding, Span
from .cross_file_hits import CrossFileHit, find_cross_file_hits
from .error_text import describe_error
from .files.source_reader import PYTHON, Source, Unreadable
from .finding_builder import build_finding, finding_at
from .settings import Settings

ALLOW_WITHOUT_EFFECT = "AF002"
# A file without any of these words has nothing for us, unless a class of it is a dataset.
_MENTIONS = re.compile(
    r"DataLoader|dataloader|data_loader|torch\.utils|Dataset\b|__getitem__|Sampler|worker_init"
    r"|collate|TrainingArguments|set_start_method|init_process_group|DistributedDataParallel"
    r"|_NUM_THREADS|Accelerator\(|set_epoch|torch\.distributed|LOCAL_RANK|WORLD_SIZE|strategy=|antifreeze:"
)


def parse(source: Source, name: str, *, is_package: bool, shallow: bool = False) -> Module:
    """Parse. Raise Unreadable if that cannot be done."""
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
    """Parse and summarise one file by itself. Return the module too, unless it was read shallowly,
    as most files are."""
    deep = _MENTIONS.search(source.text) is not None
    module = parse(source, name, is_package=is_package, shallow=not deep)
    summary = dataclasses.replace(
        summarise(module, is_package=is_package), is_repaired=bool(source.faults)
    )
    if not deep:
        return None, summary
    summary = dataclasses.replace(summary, mentions_data_loading=True)
    with contextlib.suppress(StepBudgetExceeded):  # the second pass meets it too, and says so
        whole = View(module, Project([summary])).summary
        summary = dataclasses.replace(summary, **_program_facts(whole))
    return module, summary


def _program_facts(whole: Summary) -> dict[str, Any]:
    return {
        "loaders": whole.loaders,
        "distributed": whole.distributed,
        "start_method": whole.start_method,
    }


def may_have_findings(summary: Summary, project: Project) -> bool:
    """Whether rules can find anything in a file: it speaks of loaders or datasets, or has a
    class that is one."""
    return summary.mentions_data_loading or any(
        project.loaders_of(f"{summary.name}.{name}", summary.path)
        or not library_names.LOADING_CLASSES.isdisjoint(
            project.ancestors(f"{summary.name}.{name}", summary.path)
        )
        for name in summary.classes
    )


def second_pass(
    module: Module, source: Source, project: Project, settings: Settings
) -> tuple[list[RuleFinding], list[Failure]]:
    """Run the rules on a file. Return what they found, and which of them failed, and how."""
    view = View(module, project)
    found: list[RuleFinding] = []
    in_other_files: list[tuple[Rule, CrossFileHit]] = []
    failures: list[Failure] = []
    rules = settings.rules_for(source.path)
    for rule in rules:
        try:
            hits = [hit for hit in rule.find(view) if module.holds(hit.node)]
            others = list(find_cross_file_hits(rule, view)) if rule.follows else []
            if rule.severity is CRASH:
                hits = [each for each in hits if not is_expected_to_fail(each.node, module)]
                others = [e for e in others if not is_expected_to_fail(e.hit.node, e.module)]
        except StepBudgetExceeded as error:  # nothing is left for the rules after this one
            failures.append(Failure(source.path, f"{error}; no rule after it was tried", rule.code))
            break
        except Exception as error:  # ours, not the program's: the other rules go on
            failures.append(Failure(source.path, describe_error(error), rule.code))
            continue
        found += (build_finding(rule, hit, source) for hit in hits)
        in_other_files += ((rule, each) for each in others)
    # An allow has its effect on what is found, whether it is shown or not.
    allows = read_allows(source.text)
    here = Allows(allows)
    left = here.silence(_once(found))
    left += _allowed_by_neither(in_other_files, source, here, settings)
    left = [each for each in left if settings.shows(each.confidence)]
    followed = bool(project.importers(source.path))
    left += _without_effect(allows, rules, source, strict=settings.strict, followed=followed)
    return left, failures


def _allowed_by_neither(
    in_other_files: list[tuple[Rule, CrossFileHit]],
    source: Source,
    allows: Allows,
    settings: Settings,
) -> Iterator[RuleFinding]:
    """Yield what is found in other files, each once, unless the settings or a comment there allow
    it, or a comment at the place of this file that leads there."""
    there: dict[Path, Allows] = {}
    seen: set[tuple[Path, str, Span]] = set()
    for rule, each in in_other_files:
        found = build_finding(rule, each.hit, each.source)
        if (key := (found.path, found.code, found.span)) in seen:
            continue
        seen.add(key)
        if rule not in settings.rules_for(found.path):
            continue
        if found.path not in there:
            there[found.path] = Allows(read_allows(each.source.text))
        here = build_finding(rule, Hit(each.entry_point, found.words), source)
        if allows.silence([here]) and there[found.path].silence([found]):
            yield found


def _once(found: Iterable[RuleFinding]) -> Iterator[RuleFinding]:
    seen = set()
    for each in found:
        if (key := (each.code, each.span)) not in seen:
            seen.add(key)
            yield each


def _without_effect(
    allows: list[Allow],
    rules: tuple[Rule, ...],
    source: Source,
    *,
    strict: bool,
    followed: bool,
) -> Iterator[RuleFinding]:
    """Report allows of rules that do not exist, and under `strict` those that silence nothing.
    `followed`: others import this file, and may lead to what they silence."""
    about = next((rule for rule in rules if rule.code == ALLOW_WITHOUT_EFFECT), None)
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
            yield finding_at(about, source, words, allow.line, allow.column)
