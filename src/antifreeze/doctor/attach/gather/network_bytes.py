"""What processes receive and send over TCP, as the kernel counts it for each connection."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ...._linux.bounded_reads import proc_link
from ...._linux.socket_traffic import sockets_of, tcp_bytes
from ..facts import Process

_OWN = "self"


def with_network_bytes(processes: Iterable[Process]) -> list[Process]:
    """Return the processes with what they have received and sent, where that can be known."""
    counted = tcp_bytes()
    if counted is None:
        return list(processes)
    return [
        replace(each, network_bytes=_total(each.pid, each.parent, counted))
        if _network(str(each.pid)) == _network(_OWN)
        else each
        for each in processes
    ]


def network_bytes(pid: int, parent: int) -> int:
    """Return what the connections of a process, but those of its parent, have received and sent;
    -1 if that is not known."""
    counted = tcp_bytes()
    if counted is None or _network(str(pid)) != _network(_OWN):
        return -1
    return _total(pid, parent, counted)


def _total(pid: int, parent: int, counted: dict[int, int]) -> int:
    mine = {*sockets_of(pid).values()}
    if not mine:
        return 0
    return sum(counted.get(each, 0) for each in mine - {*sockets_of(parent).values()})


def _network(process: str) -> str:
    """Return the network namespace of a process: sockets of others are not seen."""
    return proc_link(process, "ns", "net") or process
