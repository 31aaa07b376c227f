"""A question to a person, in a worker that has no keyboard."""

from __future__ import annotations

from collections.abc import Iterator

from ..source.view import View
from .rule import CRASH, LIKELY, POSSIBLE, Hit, Rule

_QUIT = "it has no keyboard, and fails with BdbQuit"
_EVER = "waits for an editor of its own, for ever"
# What asks, and what becomes of it in a worker.
ASKS = {
    "input": "it has no keyboard, and fails with EOFError",
    "breakpoint": _QUIT,
    "pdb.set_trace": _QUIT,
    "ipdb.set_trace": _QUIT,
    "IPython.core.debugger.set_trace": _QUIT,
    "IPython.embed": "it has no keyboard, and fails or waits for ever",
    "pudb.set_trace": "it has no keyboard, and fails or waits for ever",
    "getpass.getpass": "asks at the one terminal of the program, and waits for ever",
    "debugpy.wait_for_client": _EVER,
    "ptvsd.wait_for_attach": _EVER,
}


def find(view: View) -> Iterator[Hit]:
    for code in view.worker_code:
        for call in code.function.calls():
            name = view.resolve(call.func)
            if name in ASKS:
                yield Hit(
                    call,
                    f"`{name}()` in `{code.function.name}` runs in a worker: {ASKS[name]}",
                    LIKELY if code.workers is not None else POSSIBLE,
                )


RULE = Rule(
    code="AF408",
    name="waits-for-a-person",
    severity=CRASH,
    confidence=LIKELY,
    find=find,
    follows=True,
)
