"""A worker that ends itself takes its batch along, and the loop with it."""

from __future__ import annotations

from collections.abc import Iterator

from ..source.view import View
from .rule import CRASH, LIKELY, POSSIBLE, Hit, Rule

EXITS = frozenset({"sys.exit", "exit", "quit", "os._exit", "os.abort"})


def find(view: View) -> Iterator[Hit]:
    for code in view.worker_code:
        if code.only_ours:
            continue  # it names the sample and the exit code
        for call in code.function.calls():
            name = view.resolve(call.func)
            if name in EXITS:
                yield Hit(
                    call,
                    f"`{name}()` in `{code.function.name}` ends the worker, not the program: the"
                    " loop fails with `DataLoader worker exited unexpectedly`, without a cause",
                    LIKELY if code.workers is not None else POSSIBLE,
                )


RULE = Rule(
    code="AF412",
    name="exits-in-a-worker",
    severity=CRASH,
    confidence=LIKELY,
    find=find,
    follows=True,
)
