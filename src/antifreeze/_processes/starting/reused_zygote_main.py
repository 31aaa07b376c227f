"""A zygote that is kept when its epoch is over: it forks the zygotes of later ones.

What it was sent is what would be sent again, byte for byte: the main process has compared it. It
runs no code of the user's, so it is still what it was when it was opened.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import socket

from ..._transport.descriptors import Descriptor
from ..._worker import parent_watch
from .fd_passing import receive
from .zygote_forks import Act, bring

NAME = "af_kept"  # as the kernel shows it


def serve(control: socket.socket, main: Descriptor, act: Act) -> None:
    """Wait, and fork a zygote when asked, until the main process is gone or needs none."""
    parent_watch.name_process(NAME)
    poller = select.poll()
    poller.register(main.number, select.POLLIN)
    poller.register(control, select.POLLIN)
    while True:  # bounded by the life of the main process
        if any(fd == main.number for fd, _ in poller.poll()):
            return
        data, descriptors = receive(control)
        if not data:
            return
        with contextlib.suppress(ChildProcessError):  # zygotes of earlier epochs
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        bring(pickle.loads(data), descriptors, control, main, act)
