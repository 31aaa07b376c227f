"""What a rule is: its page and its examples, as data, and a function that finds."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

from ..findings import Confidence
from ..source.view import View

CERTAIN, LIKELY, POSSIBLE = Confidence


class Severity(Enum):
    """What becomes of the program, if the finding is right."""

    FREEZE = "freeze"
    CRASH = "crash"
    WRONG_DATA = "wrong data"
    SLOW = "slow"


FREEZE, CRASH, WRONG_DATA, SLOW = Severity


@dataclass(frozen=True, slots=True)
class SetArgument:
    """Give a call a keyword argument, or another value for the one it has."""

    call: ast.Call
    name: str
    code: str


@dataclass(frozen=True, slots=True)
class DropArgument:
    """Take a keyword argument from a call."""

    call: ast.Call
    name: str


@dataclass(frozen=True, slots=True)
class Replace:
    """Put other code in the place of an expression or a statement."""

    node: ast.expr | ast.stmt
    code: str


@dataclass(frozen=True, slots=True)
class Wrap:
    """Put code around an expression, which itself stays as it is written, comments and all."""

    node: ast.expr
    before: str
    after: str


Edit = SetArgument | DropArgument | Replace | Wrap


@dataclass(frozen=True, slots=True)
class Fix:
    """Edits that belong together. Only what cannot change what the program means to do."""

    title: str  # "pass shuffle=False"
    edits: tuple[Edit, ...]


@dataclass(frozen=True, slots=True)
class Hit:
    """One place where a rule found something."""

    node: ast.AST  # of the view's own file; hits elsewhere are left to the view of that file
    words: str  # one sentence: what is wrong here, by the names of this program
    confidence: Confidence | None = None  # None: the rule's own
    fix: Fix | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule and its page. Texts are Markdown, in short sentences."""

    code: str  # AF104; never used again for another rule
    name: str  # missing-main-guard: what `# antifreeze: allow[...]` takes
    severity: Severity
    confidence: Confidence  # of a hit that does not say; POSSIBLE is shown only if asked for
    title: str  # a few words: the heading of the page
    what: str  # what is flagged
    why: str  # what happens then, and how we know: a link or a measurement
    instead: str  # what to do
    bad: str  # a program in which exactly this rule finds something
    good: str  # the same, done right: no rule finds anything
    find: Callable[[View], Iterator[Hit]]
    not_flagged: str = ""  # what looks like it and is fine
    also_bad: tuple[str, ...] = ()
    also_good: tuple[str, ...] = ()
    opinion: bool = False  # off unless selected: AF9xx
    follows: bool = False  # asks only for worker code: it looks at that of other files, too

    @property
    def group(self) -> str:
        return GROUPS[self.code[2]]


GROUPS = {
    "0": "files and comments",
    "1": "starting workers",
    "2": "memory and handles",
    "3": "randomness",
    "4": "waiting, locking and errors",
    "5": "speed",
    "6": "distributed training",
    "7": "programs that cannot start",
    "9": "opinions",
}
