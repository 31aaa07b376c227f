"""`install()` for the processes that a program starts by multiprocessing (spawn, forkserver).

A forked one has it anyway. Every other is sent, with its Process object, a few words of its
parent's: among them, from now on, that antifreeze is installed. It matters to those that use torch
only; the others would pay a second to import it. So the words are such that nothing of ours is
imported to read them, unless torch is there: the script, which is run again first, imports it.
"""

from __future__ import annotations

import pickle
from multiprocessing import process
from typing import Any

_KEY = "antifreeze"
_ARRIVE = "__import__('antifreeze.integrations.install', None, None, ['arrive']).arrive"


class Carried:
    """Is pickled as a question for the other process, which answers with one like it."""

    def __init__(self) -> None:
        self.options: dict[str, Any] = {}

    def __reduce__(self) -> Any:
        sendable = {name: value for name, value in self.options.items() if _is_sendable(value)}
        question = f"'torch' in __import__('sys').modules and {_ARRIVE}({pickle.dumps(sendable)!r})"
        return eval, (question,)


def _is_sendable(value: Any) -> bool:
    try:
        pickle.dumps(value)
    except Exception:  # a policy with a lambda, say: that must not keep a process from starting
        return False
    return True


def carry(options: Any) -> Carried:
    """Have all processes that are started from now on know these options, too."""
    words: dict[str, Any] = process.current_process()._config  # type: ignore[attr-defined]
    kept = words.get(_KEY)
    if not isinstance(kept, Carried):
        kept = words[_KEY] = Carried()
    kept.options.update(options)
    return kept
