"""What comes to a process over the network: bytes where the kernel counts them.

1. TCP: the kernel's own count. A thread that wakes up for a timer receives nothing.
2. Other sockets (UDP, Unix, or TCP where the kernel does not answer): how often a thread that waits
   for one was woken. A pair whose ends are both the process's own, by which the threads of an event
   loop wake each other, does not count.
3. Sockets that the parent has too are most often connections of the main process, which a fork has
   copied: what it receives there is no progress of a worker, unless the worker waits for it.
"""

from __future__ import annotations

from .live_processes import voluntary_switches
from .socket_traffic import sockets_of, tcp_bytes, unix_peers

NOTHING = -1  # it waits for no socket


def own_bytes(pid: int, parent: int) -> int:
    """Return what the TCP sockets of a process have received and sent that its parent lacks."""
    mine = {*sockets_of(pid).values()}
    if not mine or (counted := tcp_bytes()) is None:
        return 0
    own = mine - {*sockets_of(parent).values()}
    return sum(counted.get(inode, 0) for inode in own)


def awaited(pid: int, task: str, numbers: list[int] | None) -> int:
    """Return a number that changes when something comes to the sockets which a thread waits for;
    `NOTHING` if it waits for none. `numbers`: the descriptors; None: any of the process, but not a
    Unix socket: a worker has one of ours."""
    mine = sockets_of(pid)
    inodes = {mine[each] for each in (mine if numbers is None else numbers) if each in mine}
    if not inodes:
        return NOTHING
    counted = tcp_bytes()
    if counted is None:
        return voluntary_switches(pid, task)
    others = inodes - counted.keys()
    if others:
        peers = unix_peers()
        inside = {*mine.values()} if numbers is not None else {*mine.values(), *peers.values()}
        others = {inode for inode in others if peers.get(inode) not in inside}
    received = sum(counted.get(inode, 0) for inode in inodes)
    if others:
        return received + voluntary_switches(pid, task)
    return received if inodes & counted.keys() else NOTHING
