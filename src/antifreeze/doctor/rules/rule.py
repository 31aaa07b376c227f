"""What a rule is: a code, a name, a function that finds, and a page with its examples."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from ..findings import Confidence
from ..source.view import View
from .page_parser import RulePage, read_page

_FOLDER = Path(__file__).parent
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
    """Return a call a keyword argument, or another value for the one it has."""

    call: ast.Call
    name: str
    code: str


@dataclass(frozen=True, slots=True)
class DropArgument:
    """Remove a keyword argument from a call."""

    call: ast.Call
    name: str


@dataclass(frozen=True, slots=True)
class Replace:
    """Replace an expression or a statement with other code."""

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
    """One rule. Its texts and examples are on its page, a Markdown file beside the rule's own."""

    code: str  # AF104; never used again for another rule
    name: str  # missing-main-guard: what `# antifreeze: allow[...]` takes
    severity: Severity
    confidence: Confidence  # of a hit that does not say; POSSIBLE is shown only if asked for
    find: Callable[[View], Iterator[Hit]]
    opinion: bool = False  # off unless selected: AF9xx
    follows: bool = False  # asks only for worker code: it looks at that of other files, too

    @property
    def page(self) -> RulePage:
        """Return the page, read when it is asked for first: most runs need few of them."""
        stem = f"{self.code.lower()}_{self.name.replace('-', '_')}"
        return read_page(_FOLDER / f"{stem}.md")

    @property
    def title(self) -> str:
        return self.page.title

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
