"""Apply fixes to source and keep its formatting. Needs libcst (the extra `check`).

Fixes are applied one after the other, those further down first, so that places stay right; a fix
that overlaps one that was applied waits for the next round.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .check_result import INSIDE, PlainEdit, RuleFinding, Span

if TYPE_CHECKING:
    import libcst


class CannotFix(Exception):
    """libcst is not there."""


@dataclass(frozen=True, slots=True)
class FixedText:
    """A text after its fixes."""

    text: str
    applied: tuple[RuleFinding, ...]


def fix_text(text: str, found: Iterable[RuleFinding]) -> FixedText:
    """Apply the fixes of findings to the text they were found in. Raise CannotFix."""
    try:
        import libcst
    except ImportError:
        raise CannotFix("--fix needs libcst: pip install libcst") from None
    chosen: list[RuleFinding] = []
    taken = _Taken()
    for each in found:
        if each.fix is None or not each.can_be_fixed:
            continue
        spans = [edit.span for edit in each.fix.edits]
        if any(map(taken.overlaps, spans)):
            continue
        taken.add(spans)
        chosen.append(each)
    if not chosen:
        return FixedText(text, ())
    edits = [edit for each in chosen if each.fix is not None for edit in each.fix.edits]
    try:
        new, took = _apply(text, edits)
    except libcst.ParserSyntaxError:
        return FixedText(text, ())
    applied = (each for each in chosen if each.fix is not None and took.issuperset(each.fix.edits))
    return FixedText(new, tuple(applied))


class _Taken:
    """Places that a fix changes, in order; none of them overlap."""

    def __init__(self) -> None:
        self._starts: list[tuple[int, int]] = []
        self._ends: list[tuple[int, int]] = []

    def overlaps(self, span: Span) -> bool:
        place = bisect.bisect_left(self._starts, (span.end_line, span.end_column)) - 1
        return place >= 0 and self._ends[place] > (span.line, span.column)

    def add(self, spans: list[Span]) -> None:
        """Add the places of one fix, which may overlap each other: then they count as one."""
        for each in sorted(spans, key=lambda each: (each.line, each.column)):
            start, end = (each.line, each.column), (each.end_line, each.end_column)
            place = bisect.bisect_left(self._starts, end) - 1
            if place >= 0 and self._ends[place] > start:
                self._ends[place] = max(end, self._ends[place])
            else:
                self._starts.insert(place + 1, start)
                self._ends.insert(place + 1, end)


def _apply(text: str, edits: list[PlainEdit]) -> tuple[str, set[PlainEdit]]:
    """Return the new text, and the edits that found their place."""
    import libcst as cst
    from libcst.metadata import MetadataWrapper, PositionProvider

    by_place: dict[tuple[int, int, int, int], list[PlainEdit]] = {}
    took: set[PlainEdit] = set()
    for each in edits:
        span = each.span
        place = (span.line, span.column, span.end_line, span.end_column)
        by_place.setdefault(place, []).append(each)

    class Changes(cst.CSTTransformer):  # type: ignore[misc]
        METADATA_DEPENDENCIES = (PositionProvider,)

        def on_leave(
            self, original_node: cst.CSTNode, updated_node: cst.CSTNode
        ) -> cst.CSTNode | cst.RemovalSentinel | cst.FlattenSentinel[cst.CSTNode]:
            updated = super().on_leave(original_node, updated_node)
            if not isinstance(original_node, (cst.BaseExpression, cst.BaseSmallStatement)):
                return updated
            where = self.get_metadata(PositionProvider, original_node)
            place = (where.start.line, where.start.column, where.end.line, where.end.column)
            for edit in by_place.get(place, ()):
                changed = _changed(updated, edit)
                if changed is not updated:
                    took.add(edit)
                updated = changed
            return updated

    # No copy: what was just parsed has each node once, and nobody else has it.
    wrapper = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
    return str(wrapper.visit(Changes()).code), took


def _changed(node: libcst.CSTNode, edit: PlainEdit) -> libcst.CSTNode:
    import libcst as cst

    if edit.kind == "replace":
        return cst.parse_expression(edit.code) if isinstance(node, cst.BaseExpression) else node
    if edit.kind == "wrap":
        if not isinstance(node, cst.BaseExpression):
            return node
        return _wrapped(node, edit.code)
    if edit.kind == "replace-statement":
        if not isinstance(node, cst.BaseSmallStatement):
            return node
        statement = cst.parse_statement(edit.code)
        assert isinstance(statement, cst.SimpleStatementLine)
        return statement.body[0]
    if not isinstance(node, cst.Call):
        return node
    others = [each for each in node.args if each.keyword is None or each.keyword.value != edit.name]
    if edit.kind == "drop-argument":
        if len(others) == len(node.args):
            return node
        if others:
            others[-1] = others[-1].with_changes(comma=node.args[-1].comma)
        return node.with_changes(args=others)
    value = cst.parse_expression(edit.code)
    changed = [each.with_changes(value=value) if each not in others else each for each in node.args]
    if len(others) == len(node.args):
        changed = _with_one_more(list(node.args), edit.name, value)
    return node.with_changes(args=changed)


def _wrapped(node: libcst.BaseExpression, code: str) -> libcst.BaseExpression:
    """Put an expression, as it is written, into the place that code keeps for it."""
    import libcst as cst
    import libcst.matchers as m

    around = cst.parse_expression(code)
    (place,) = m.findall(around, m.Name(INSIDE))
    assert isinstance(place, cst.Name)
    if not node.lpar:  # it may have brackets of its own
        node = node.with_changes(lpar=place.lpar, rpar=place.rpar)
    whole = around.deep_replace(place, node)
    assert isinstance(whole, cst.BaseExpression)
    return whole


def _with_one_more(
    arguments: list[libcst.Arg], name: str, value: libcst.BaseExpression
) -> list[libcst.Arg]:
    """Add a keyword argument the way the last one is written: on its own line, or not."""
    import libcst as cst

    equal = cst.AssignEqual(
        whitespace_before=cst.SimpleWhitespace(""), whitespace_after=cst.SimpleWhitespace("")
    )
    new = cst.Arg(value, keyword=cst.Name(name), equal=equal)
    if not arguments:
        return [new]
    last = arguments[-1]
    between: libcst.Comma | libcst.MaybeSentinel = cst.Comma(
        whitespace_after=cst.SimpleWhitespace(" ")
    )
    if len(arguments) > 1 and isinstance(arguments[-2].comma, cst.Comma):
        between = _without_comment(arguments[-2].comma)
    return [*arguments[:-1], last.with_changes(comma=between), new.with_changes(comma=last.comma)]


def _without_comment(comma: libcst.Comma) -> libcst.Comma:
    import libcst as cst

    after = comma.whitespace_after
    if isinstance(after, cst.ParenthesizedWhitespace):
        after = after.with_changes(first_line=cst.TrailingWhitespace(), empty_lines=[])
    return comma.with_changes(whitespace_after=after)
