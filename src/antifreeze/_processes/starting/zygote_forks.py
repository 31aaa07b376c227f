"""How a process with one thread forks a zygote for the main process: the clean process, and a
zygote that was kept (`reused_zygote_main`).

With a wish come, in this order, the zygote's channel, its trace, and the outputs that are named
in it. The zygote says hello through its channel; all else comes through it, too.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from ..._core.frozen_values import frozen
from ..._transport.descriptors import Descriptor
from ..._transport.stack_file import StackFile
from ..._worker import parent_watch, signal_handlers
from .fd_passing import send
from .process_creation import patiently
from .slow_unpickling import answer

ZYGOTE = "af_zygote"  # as the kernel shows it


@frozen
class Bring:
    """Wanted: a zygote."""

    main_pid: int
    outputs: tuple[int, ...]  # those of 1 and 2 that are open in the main process


@frozen
class Hello:
    """A zygote is there that the main process has not forked. With it comes a pidfd."""

    pid: int


# What a new zygote does: by its wish, its channel, and what tells the end of the main process.
Act = Callable[[Bring, socket.socket, Descriptor], NoReturn]


def ask_for(home: socket.socket, channel: socket.socket, trace: StackFile) -> None:
    """Ask for a zygote at this end of a channel. Where it is until it is open it writes into the
    trace. Raises SourceGone."""
    outputs = [number for number in (1, 2) if _is_open(number)]
    wish = Bring(os.getpid(), tuple(outputs))
    send(home, pickle.dumps(wish), [channel.fileno(), trace.number, *outputs])


def bring(
    wish: Bring, descriptors: list[int], control: socket.socket, main: Descriptor, act: Act
) -> None:
    """Fork a zygote. If the kernel refuses, its closed channel says so."""
    parent = os.getpid()
    descriptors.insert(0, os.dup(main.number))  # its own is not inherited
    try:
        if patiently(os.fork) == 0:
            control.close()
            _begin(wish, descriptors, parent, act)
    except OSError:
        traceback.print_exc()
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _begin(wish: Bring, descriptors: list[int], parent: int, act: Act) -> NoReturn:
    try:
        parent_watch.name_process(ZYGOTE)
        parent_watch.end_with_parent(parent)  # which ends with the program
        signal_handlers.leave_to_main()
        main, channel, trace, *outputs = descriptors
        own_trace = Descriptor(trace)  # not its children's
        control = socket.socket(fileno=channel)
        control.settimeout(None)
        for number, output in zip(wish.outputs, outputs, strict=True):
            os.dup2(output, number)
            os.close(output)
        answer(own_trace.number)  # before anybody can ask
        pidfd = os.pidfd_open(os.getpid())
        say(control, Hello(os.getpid()), pidfd)
        os.close(pidfd)
        act(wish, control, Descriptor(main))
    finally:
        os._exit(1)


def say(control: socket.socket, news: Any, *riders: int) -> None:
    """Tell the main process something, if it is there to hear it."""
    with contextlib.suppress(OSError):  # it is gone, or about to end us
        socket.send_fds(control, [pickle.dumps(news)], riders)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
