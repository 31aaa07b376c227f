"""What a code object does at one of its instructions, read from its bytecode, which never runs.

1. Instructions are told apart by where they stand in the source, and by the order in which they
   use the stack: an attribute is loaded right after what it is an attribute of.
2. The compiler copies the code of a `finally`, and moves blocks about. So what a handler does is
   found by following its jumps, never by reading on.
3. What is not understood is told as such (`None`, `is_odd`), and never guessed.

Python 3.11 to 3.14.
"""

from __future__ import annotations

import bisect
import dis
import functools
import weakref
from collections.abc import Iterator
from types import CodeType
from typing import NamedTuple

MOST_CODES = 1_024  # that are remembered, some KB each; all threads of a program wait in fewer
_DEEPEST = 8  # handlers inside a handler
_JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))
_ENDS = frozenset({"RERAISE", "RAISE_VARARGS", "RETURN_VALUE", "RETURN_CONST"})
_LOCALS = ("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW", "LOAD_DEREF")
_PAIRS = ("LOAD_FAST_LOAD_FAST", "LOAD_FAST_BORROW_LOAD_FAST_BORROW", "STORE_FAST_LOAD_FAST")
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
_NOTHING = frozenset({"CACHE", "EXTENDED_ARG", "NOP", "NOT_TAKEN", "PRECALL", "PUSH_NULL"})
_ENTERING = frozenset({"BEFORE_WITH", "BEFORE_ASYNC_WITH", "LOAD_SPECIAL"})
_TYPES = ("LOAD_", "BUILD_TUPLE", *_NOTHING)  # what may come before a comparison of types
_BROAD = frozenset({"Exception", "BaseException"})

Position = tuple[int | None, int | None]  # line and column


class Step(NamedTuple):
    """One instruction."""

    offset: int
    name: str
    names: tuple[str, ...]  # what it loads, stores or deletes; of two, the last is on the stack
    target: int | None  # where it may jump to
    begins: Position  # of what it stands for in the source
    ends: Position


CALLED = "()"  # among the names of an expression: what is before it is called


class Expression(NamedTuple):
    """A name and attributes of it, or of what it returns: `self._queue.get`, `getLogger().info`."""

    names: tuple[str, ...]
    is_local: bool
    is_global: bool  # neither: a name of a module or of a class, looked for in both


class Context(NamedTuple):
    """What a `with` has entered: a thing, or what a call of it has returned."""

    expression: Expression
    is_call: bool
    bound: Expression | None = None  # the variable of its `as`, if it keeps what it got there


class Block(NamedTuple):
    """A `with` or a `try` around an instruction, and what it does if it is left by an exception."""

    words: str
    is_with: bool
    context: Context | None = None  # of a `with`; None: not understood
    calls: tuple[Expression | None, ...] = ()  # of a `try`


class _Walk(NamedTuple):
    """What can be reached from an instruction of a handler without leaving the handler."""

    follows: dict[tuple[int, int], list[tuple[int, int]]]  # by place and depth
    is_odd: bool

    def before(self, ends: set[tuple[int, int]]) -> set[tuple[int, int]]:
        """Return from where some of these can be reached."""
        found = set(ends)
        while more := {at for at, to in self.follows.items() if found.intersection(to)} - found:
            found |= more
        return found


class Reading:
    """One code object, read when it is asked for."""

    def __init__(self, code: CodeType) -> None:
        self._code = weakref.ref(code)
        self._callees: dict[int, Expression | None] = {}
        self._blocks: dict[int, tuple[Block, ...]] = {}

    def is_of(self, code: CodeType) -> bool:
        return self._code() is code

    # ---- for a frame that is at an offset --------------------------------------------------------

    def step_at(self, offset: int) -> Step | None:
        """Return the instruction at an offset, or that one whose cache is there."""
        at = self._at(offset)
        return self._steps[at] if at >= 0 else None

    def callee_at(self, offset: int) -> Expression | None:
        """Return what the instruction at an offset calls; None if that is more than names, or it
        calls nothing."""
        if offset not in self._callees:
            at = self._at(offset)
            # In Python 3.11 a call that has been made often is made by the instruction before it.
            is_call = at >= 0 and self._steps[at].name.startswith(("CALL", "PRECALL"))
            self._callees[offset] = self._callee(at) if is_call else None
        return self._callees[offset]

    def is_loop_at(self, offset: int) -> bool:
        """Whether the instruction at an offset asks for the next item of a `for`."""
        at = self._at(offset)
        return at >= 0 and self._steps[at].name == "FOR_ITER"

    def items_at(self, offset: int) -> Expression | None:
        """Return what the `for` at an offset goes over; None if that is more than names."""
        at = self._at(offset) - 1
        while at > 0 and self._steps[at].name in _NOTHING:
            at -= 1
        if at > 0 and self._steps[at].names == (".0",):  # a comprehension with code of its own
            return self._expression(at)
        return self._expression(at - 1) if at > 0 and self._steps[at].name == "GET_ITER" else None

    def blocks_at(self, offset: int) -> tuple[Block, ...]:
        """Return the blocks around an offset, the innermost first, but for those that do nothing
        when they are left."""
        if offset not in self._blocks:
            found = [self._block(target) for target in self._handlers(offset)]
            self._blocks[offset] = tuple(each for each in found if each is not None)
        return self._blocks[offset]

    def calls(self) -> list[Expression | None] | None:
        """Return all that the code calls, but for errors that it raises; None if it enters a
        `with`, or waits for another coroutine or generator."""
        if any(step.name in _ENTERING or step.name == "SEND" for step in self._steps):
            return None
        return self._calls({(at, 0) for at in range(len(self._steps))})

    def acquired(self) -> list[Expression]:
        """Return whose `acquire` the code names."""
        found = []
        for at, step in enumerate(self._steps):
            if step.name in _ATTRIBUTES and step.names == ("acquire",):
                expression = self._expression(at)
                if expression is not None and expression.names[1:]:
                    found.append(expression._replace(names=expression.names[:-1]))
        return found

    # ---- instructions ----------------------------------------------------------------------------

    @functools.cached_property
    def _steps(self) -> tuple[Step, ...]:
        code = self._code()
        assert code is not None
        # Constants are shown by their `repr`, and could be anything.
        bare = code.replace(co_consts=(None,) * len(code.co_consts))
        return tuple(map(_step, dis.get_instructions(bare)))

    @functools.cached_property
    def _offsets(self) -> list[int]:
        return [step.offset for step in self._steps]

    @functools.cached_property
    def _targets(self) -> list[int]:
        return sorted({step.target for step in self._steps if step.target is not None})

    def _at(self, offset: int) -> int:
        return bisect.bisect_right(self._offsets, offset) - 1

    def _is_straight(self, first: int, last: int) -> bool:
        """Whether nothing jumps in between: behind the first instruction, and not behind the
        last."""
        begin = bisect.bisect_right(self._targets, self._steps[first].offset)
        return self._targets[begin : begin + 1] == [] or (
            self._targets[begin] > self._steps[last].offset
        )

    def _callee(self, at: int) -> Expression | None:
        call = self._steps[at]
        if None in (*call.begins, *call.ends):
            return None
        for place in range(at - 1, -1, -1):  # the last one before: a loop has the same one again
            step = self._steps[place]
            if step.begins != call.begins or step.name in (*_NOTHING, "KW_NAMES"):
                continue
            if None not in step.ends and step.ends < call.ends:
                return self._expression(place)
        return None

    def _expression(self, last: int, until: int | None = None) -> Expression | None:
        """Return the names whose value an instruction puts on the stack. `until`: nothing may jump
        in between."""
        names: list[str] = []
        for at in range(last, -1, -1):
            step = self._steps[at]
            if step.name in _NOTHING:
                continue
            if step.name in _ATTRIBUTES and len(step.names) == 1:
                names.append(step.names[0])
                continue
            if step.name.startswith("CALL") and names:
                called = self._callee(at)
                return called and called._replace(names=(*called.names, CALLED, *names[::-1]))
            if not step.names or (step.name in _PAIRS and at == last):
                return None
            is_local = step.name in _LOCALS or step.name in _PAIRS
            if not (is_local or step.name in ("LOAD_GLOBAL", "LOAD_NAME")):
                return None
            if not self._is_straight(at, last if until is None else until):
                return None
            names.append(step.names[-1])
            return Expression(tuple(names[::-1]), is_local, step.name == "LOAD_GLOBAL")
        return None

    # ---- handlers --------------------------------------------------------------------------------

    @functools.cached_property
    def _regions(self) -> tuple[tuple[int, int, int], ...]:
        """The table of exception handlers: from where, to where, and what follows there."""
        code = self._code()
        assert code is not None
        numbers = _numbers(code.co_exceptiontable)
        found = []
        for start, length, target, _ in zip(numbers, numbers, numbers, numbers, strict=False):
            found.append((2 * start, 2 * (start + length), 2 * target))
        return tuple(found)

    def _handler(self, offset: int) -> int | None:
        return next((to for start, end, to in self._regions if start <= offset < end), None)

    def _handlers(self, offset: int) -> list[int]:
        """Return what would handle an exception at an offset, the innermost first: each handler is
        itself inside of the next one."""
        found: list[int] = []
        at = self._handler(offset)
        while at is not None and at not in found:
            found.append(at)
            at = self._handler(at)
        return found

    def _block(self, target: int) -> Block | None:
        at = self._at(target)
        if at < 0 or self._steps[at].name != "PUSH_EXC_INFO":
            return None  # it only tidies up
        body = self._skip(at + 1)
        outer = frozenset(self._handlers(target))
        if body is None:
            return Block("a handler", False, calls=(None,))
        if self._steps[body].name == "WITH_EXCEPT_START":
            return Block("a `with`", True, context=self._context(target))
        clauses = self._clauses(body)
        if clauses is None:
            walk = self._walk(body, outer)
            calls = self._calls(set(walk.follows))
            if walk.is_odd or any(  # or it has dealt with the exception: `finally: return`
                depth == 1 and self._steps[at].name == "POP_EXCEPT" for at, depth in walk.follows
            ):
                calls.append(None)
            return Block("a `try` with a `finally`", False, calls=tuple(calls)) if calls else None
        calls = []
        for clause, is_broad in clauses:
            calls += self._calls_of_clause(self._walk(clause, outer), is_broad)
        return Block("a `try` with an `except`", False, calls=tuple(calls)) if calls else None

    def _skip(self, at: int) -> int | None:
        """Return the place of the next instruction that does something."""
        while at < len(self._steps) and self._steps[at].name in _NOTHING:
            at += 1
        return at if at < len(self._steps) else None

    def _clauses(self, body: int) -> list[tuple[int, bool]] | None:
        """Return where the clauses of an `except` begin, and whether each takes nearly everything;
        None if the handler is that of a `finally`."""
        found: list[tuple[int, bool]] = []
        at: int | None = body
        while at is not None and len(found) < len(self._steps):
            if self._steps[at].name == "POP_TOP":  # `except:`
                return [*found, (at, True)]
            if self._steps[at].name == "RERAISE" and found:
                return found
            names: set[str] = set()
            while self._steps[at].name.startswith(_TYPES):
                names.update(self._steps[at].names)
                at += 1  # (A handler never ends so.)
            jump = self._skip(at + 1)
            if self._steps[at].name != "CHECK_EXC_MATCH" or jump is None:
                return None
            target = self._steps[jump].target
            if target is None:
                return None
            found.append((jump + 1, not names.isdisjoint(_BROAD)))
            at = self._skip(self._at(target))
        return None

    def _walk(self, begin: int, outer: frozenset[int]) -> _Walk:
        """Follow a handler to its ends: where it raises, returns, or has dealt with its exception.
        `outer`: handlers around it, which are looked at on their own."""
        follows: dict[tuple[int, int], list[tuple[int, int]]] = {}
        left, is_odd = [(begin, 1)], False
        while left:
            place = left.pop()
            at, depth = place
            if place in follows:
                continue
            following = follows[place] = []
            if at >= len(self._steps) or depth > _DEEPEST:
                is_odd = True
                continue
            step = self._steps[at]
            depth += (step.name == "PUSH_EXC_INFO") - (step.name == "POP_EXCEPT")
            is_odd |= step.name in _ENTERING
            if depth > 0:
                following += [(each, depth) for each in self._next(at)]
                inner = self._handler(step.offset)
                if inner is not None and inner not in outer:
                    handler = self._at(inner)
                    if self._steps[handler].name == "PUSH_EXC_INFO":
                        following.append((handler, depth))
            left += following
        return _Walk(follows, is_odd)

    def _next(self, at: int) -> Iterator[int]:
        step = self._steps[at]
        if step.target is not None:
            yield self._at(step.target)
            if not ("_IF_" in step.name or step.name in ("FOR_ITER", "SEND")):
                return
        if step.name not in _ENDS:
            yield at + 1

    def _calls(self, places: set[tuple[int, int]]) -> list[Expression | None]:
        """Return what is called at these places."""
        found: list[Expression | None] = []
        for at in sorted({at for at, _ in places if at < len(self._steps)}):
            name = self._steps[at].name
            if name.startswith("CALL") and not name.startswith("CALL_INTRINSIC"):
                called = self._callee(at)
                if not (called is not None and self._makes_error(at, called)):
                    found.append(called)
        return found

    def _makes_error(self, at: int, called: Expression) -> bool:
        """Whether a call seems to be that of a class whose object is raised at once."""
        following = [self._skip(at + 1)]
        if following[0] is not None and self._steps[following[0]].name.startswith("LOAD_"):
            following.append(self._skip(following[0] + 1))  # `from error`
        raised = following[-1] is not None and self._steps[following[-1]].name == "RAISE_VARARGS"
        return raised and called.names[-1].lstrip("_")[:1].isupper()

    def _calls_of_clause(self, walk: _Walk, is_broad: bool) -> list[Expression | None]:
        """Return what an `except` calls that may let go of something the `try` has taken: whatever
        is named so; and where it takes any exception only to raise it again, all that it calls
        before. (A loop that logs its errors and goes on does neither.)"""
        found = [each for each in self._calls(set(walk.follows)) if _sounds_like_release(each)]
        raises = {
            (at, depth)
            for at, depth in walk.follows
            if at < len(self._steps) and self._steps[at].name == "RAISE_VARARGS"
        }
        if is_broad and raises:
            found += self._calls(walk.before(raises))
        return found

    def _context(self, target: int) -> Context | None:
        """Return what the `with` has entered that a handler belongs to; None if that is not one
        straight expression, or its names have got other values since."""
        regions = [(start, end) for start, end, to in self._regions if to == target]
        enter = at = self._at(min(start for start, _ in regions) - 1)
        if at >= 0 and self._steps[at].name.startswith("CALL"):  # `__enter__`, from 3.14 on
            at -= 1
        if at < 0 or self._steps[at].name not in _ENTERING:
            return None
        while at >= 0 and self._steps[at].name in (*_ENTERING, *_NOTHING, "COPY", "SWAP"):
            at -= 1
        if at < 0:
            return None
        is_call = self._steps[at].name.startswith("CALL")
        if is_call and not self._is_straight(at, enter):
            return None
        found = self._callee(at) if is_call else self._expression(at, enter)
        if found is None or self._is_rebound(found, regions):
            return None
        return Context(found, is_call, self._bound(enter, regions))

    def _bound(self, enter: int, regions: list[tuple[int, int]]) -> Expression | None:
        """Return the variable that a `with` binds right after it has entered, and nothing else
        binds within it."""
        at = self._skip(enter + 1)
        if at is not None and self._steps[at].name.startswith("CALL"):  # from 3.14 on
            at = self._skip(at + 1)
        if at is None or self._steps[at].name != "STORE_FAST":
            return None
        bound = Expression(self._steps[at].names, True, False)
        first = self._steps[at].offset
        later = [(max(start, first + 1), end) for start, end in regions]
        return None if self._is_rebound(bound, later) else bound

    def _is_rebound(self, expression: Expression, regions: list[tuple[int, int]]) -> bool:
        return any(
            step.name.startswith(("STORE_", "DELETE_"))
            and not set(step.names).isdisjoint(expression.names)
            and any(start <= step.offset < end for start, end in regions)
            for step in self._steps
        )


_readings: dict[int, Reading] = {}  # by the address of the code


def reading_of(code: CodeType) -> Reading:
    # (Not by the code itself: to compare code is to compare its constants, and takes longer.)
    found = _readings.get(id(code))
    if found is None or not found.is_of(code):
        if len(_readings) >= MOST_CODES:
            _readings.clear()
        found = _readings[id(code)] = Reading(code)
    return found


def _step(each: dis.Instruction) -> Step:
    place, argument = each.positions, each.argval
    begins = (None, None) if place is None else (place.lineno, place.col_offset)
    ends = (None, None) if place is None else (place.end_lineno, place.end_col_offset)
    names = argument if type(argument) is tuple else (argument,)
    if not all(type(name) is str for name in names):
        names = ()
    target = argument if each.opcode in _JUMPS and type(argument) is int else None
    return Step(each.offset, each.opname, names, target, begins, ends)


def _numbers(table: bytes) -> Iterator[int]:
    """Yield numbers of six bits a byte, the highest first; bit 6 says that more follow."""
    value = 0
    for byte in table:
        value = value << 6 | byte & 63
        if not byte & 64:
            yield value
            value = 0


def _sounds_like_release(called: Expression | None) -> bool:
    if called is None:
        return False
    name = called.names[-1]
    return "release" in name or "unlock" in name or name == "__exit__"
