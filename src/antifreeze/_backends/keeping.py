"""A template that is kept when its epoch is over: it forks the templates of later ones.

What it was sent is what would be sent again, byte for byte: the main process has compared it. It
runs no code of the user's, so it is still what it was when it was opened.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import select
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from .._transport.descriptors import Descriptor
from .._worker import guard
from .._worker.spec import Job
from .bringing import Bring, bring, say
from .riders import receive, receive_many

if TYPE_CHECKING:
    from .template_process import Mother, Terms

NAME = "af_kept"  # as the kernel shows it


def serve(mother: Mother, control: socket.socket, main: Descriptor) -> None:
    """Wait, and fork a template when asked, until the main process is gone or needs none."""
    guard.name_process(NAME)
    poller = select.poll()
    poller.register(main.number, select.POLLIN)
    poller.register(control, select.POLLIN)
    while True:  # bounded by the life of the main process
        if any(fd == main.number for fd, _ in poller.poll()):
            return
        data, descriptors = receive(control)
        if not data:
            return
        wish = pickle.loads(data)
        with contextlib.suppress(ChildProcessError):  # templates of earlier epochs
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        bring(wish, descriptors, control, main, functools.partial(_begin, mother))


def _begin(mother: Mother, wish: Bring, control: socket.socket, main: Descriptor) -> NoReturn:
    from .sending import Unpacking
    from .template_process import Warmed, serve

    terms: Terms = Unpacking(*receive_many(control)).next()
    job = mother.job
    if isinstance(job, Job):
        job = terms.complete(job)
    else:
        job.terms = terms
    say(control, Warmed((), 0.0))
    guard.outlive_parent()
    guard.pass_on(terms.handled, to=main)
    guard.unblock_interrupts()
    renewed = replace(
        mother,
        job=job,
        status=terms.status,
        main=main,
        handled=terms.handled,
        clean_since=terms.why,
    )
    serve(renewed, control, main)
    os._exit(0)
