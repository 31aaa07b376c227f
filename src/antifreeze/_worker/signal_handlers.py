"""Which of the program's signal handlers run in workers, and which are the main process's alone.

1. A forked worker has the handlers that the program had when the loop began, as torch's has. The
   zygote has none of them; it puts them back in the workers that it forks.
2. Not those in `LEFT_TO_MAIN`, and not those of `CRASHES`.
3. A worker that inherits nothing because we chose so is sent those of timers: these fire only
   where the dataset itself has set one. Where the user asked for such workers, it is sent none.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Collection, Iterable, Mapping
from types import FunctionType
from typing import Any

from .._transport.descriptors import Descriptor

Handlers = Mapping[int, Any]  # functions of the program, by the numbers of signals

# A terminal, a scheduler or a container's runtime sends them to all processes of a program, to end
# it; SIGCHLD is about children that the worker does not have.
LEFT_TO_MAIN = frozenset(
    {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD}
)
# Python runs a handler when the interpreter goes on, which it never does: a worker would hang where
# it should crash. Here `faulthandler` has them (see `stack_sampler`).
CRASHES = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT})
_OURS = f"{__name__.partition('.')[0]}."
_TIMERS = frozenset({signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF})
# They end the zygote, as they end any process that was not told otherwise.
_NOT_PASSED_ON = CRASHES | {signal.SIGINT, signal.SIGTERM, signal.SIGCHLD}


def of_program() -> dict[int, Any]:
    """Return the handlers of this program that its forked workers have as well."""
    found = {number: signal.getsignal(number) for number in _handled(LEFT_TO_MAIN | CRASHES)}
    return {number: handler for number, handler in found.items() if not _is_ours(handler)}


def sendable(handlers: Handlers) -> dict[int, Any]:
    """Return those that are sent to a process that inherits nothing. Methods and closures are not:
    they may hold all that the program has."""
    return {
        number: handler
        for number, handler in handlers.items()
        if number in _TIMERS and isinstance(handler, FunctionType) and not handler.__closure__
    }


def leave_to_main() -> None:
    """Let Ctrl-C be the main process's business, and what else ends a program what the kernel makes
    of it. Children inherit that.

    The handler for SIGINT does nothing but is not SIG_IGN, which programs started by a dataset
    would inherit.
    """
    with contextlib.suppress(ValueError):  # not in the main thread: there is no handler to keep
        signal.set_wakeup_fd(-1)
        for number in set(_handled(())) - set(of_program()):
            signal.signal(number, signal.SIG_DFL)
        for number in (signal.SIGTERM, signal.SIGCHLD):  # also where the program ignores them
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, lambda signum, frame: None)


def passed_on() -> tuple[int, ...]:
    """Return the signals that this program has handlers for, and that do not end it."""
    return _handled(_NOT_PASSED_ON)


def pass_on(numbers: Iterable[int], to: Descriptor) -> None:
    """Have these signals go to another process: a dataset may mean the main one by its parent.

    `to` is its pidfd: its number may be another process's by the time a signal comes. Children of
    this process, in which the descriptor is closed, pass nothing on.
    """
    owner = os.getpid()

    def send(received: int, frame: object) -> None:
        if os.getpid() == owner:
            with contextlib.suppress(OSError):  # it is gone
                signal.pidfd_send_signal(to.number, received)

    for number in numbers:
        _handle(number, send)


def restore(numbers: Iterable[int], handlers: Handlers) -> None:
    """Handle signals as the program does; those of `numbers` without a handler by default."""
    for number in {*numbers, *handlers}:
        handler = handlers.get(number, signal.SIG_DFL)
        if signal.getsignal(number) is not handler:  # else it stays as `siginterrupt` has left it
            _handle(number, handler)


def _handle(number: int, handler: Any) -> None:
    with contextlib.suppress(OSError, ValueError):
        signal.signal(number, handler)


def _is_ours(handler: Any) -> bool:
    """Whether it is that of `antifreeze run`, which is about the main process."""
    return str(getattr(handler, "__module__", "")).startswith(_OURS)


def _handled(without: Collection[int]) -> tuple[int, ...]:
    numbers = signal.valid_signals() - set(without)
    return tuple(int(number) for number in numbers if callable(signal.getsignal(number)))
