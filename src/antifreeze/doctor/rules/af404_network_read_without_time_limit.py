"""A worker that reads from the network, and waits as long as the other side likes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.view import View
from ..source.worker_code import WorkerCode
from .rule import FREEZE, LIKELY, POSSIBLE, Hit, Rule

_VERBS = ("get", "post", "put", "head", "patch", "delete", "options", "request")
_PASSED = ("url", "first", "second")  # what may come before the keywords of requests
# The functions that take a time limit, with the names of their positional parameters.
LIMITED = {
    "urllib.request.urlopen": ("url", "data", "timeout"),
    "socket.create_connection": ("address", "timeout"),
    "http.client.HTTPConnection": ("host", "port", "timeout"),
    "http.client.HTTPSConnection": ("host", "port"),
    "ftplib.FTP": ("host", "user", "passwd", "acct", "timeout"),
} | {f"requests.{verb}": _PASSED for verb in _VERBS}
UNLIMITED = frozenset({"urllib.request.urlretrieve", "wget.download"})  # they take none
_SESSIONS = frozenset({"requests.Session", "requests.session", "requests.sessions.Session"})


def find(view: View) -> Iterator[Hit]:
    by_default = bool(view.calls("socket.setdefaulttimeout"))
    for code in view.worker_code:
        if code.only_ours or _gives_up(code):
            continue
        for call in code.function.calls():
            name = _reads(call, view)
            if name and not (by_default and not name.startswith("requests")):
                yield Hit(
                    call,
                    f"`{name}` in `{code.function.name}` has no time limit: a server that does not"
                    " answer stops this worker, and with it the loop, for ever",
                    LIKELY if code.workers is not None else POSSIBLE,
                )


def _gives_up(code: WorkerCode) -> bool:
    """Whether the loader itself has a time limit."""
    if code.loader is not None:
        return code.loader["timeout"].given and code.loader["timeout"].value != 0
    return code.dataset is not None and any(each.has_timeout for each in code.dataset.loaders)


def _reads(call: ast.Call, view: View) -> str:
    """Return the name of what is called, if it may wait for ever."""
    name = view.resolve(call.func)
    if name in UNLIMITED:
        return name
    if name in LIMITED:
        limit = view.call_arguments(call, LIMITED[name])["timeout"]
        return name if limit.absent or limit.is_(None) else ""
    match call.func:
        case ast.Attribute(attr=verb, value=ast.expr() as session) if verb in _VERBS:
            if view.type_of(session) not in _SESSIONS or view.method_calls("mount"):
                return ""  # an adapter may have a limit of its own
            limit = view.call_arguments(call, _PASSED)["timeout"]
            if limit.absent or limit.is_(None):
                return f"requests.Session.{verb}"
        case _:
            pass
    return ""


RULE = Rule(
    code="AF404",
    name="network-read-without-time-limit",
    severity=FREEZE,
    confidence=LIKELY,
    find=find,
    follows=True,
)
