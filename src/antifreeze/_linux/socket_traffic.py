"""How many bytes sockets have received and sent: the kernel's own count, by netlink (sock_diag).

The kernel counts what a process takes by `read` (/proc/PID/io), but not what it takes by `recv`. A
process that waits for a network with a timer wakes up just as often as one to which data comes, so
wake-ups prove nothing; bytes do. Only the sockets of our own network namespace are seen, and no
privilege is needed. Never blocks for more than `ANSWER_S`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import socket
import struct
from collections.abc import Iterator

ANSWER_S = 0.5  # for the kernel to answer; it takes 0.3 ms with few sockets
MOST_OPEN = 4096  # open files of a process that are looked at: one may have a million
MOST_BYTES = 16 * 1024 * 1024  # of answers: some 40,000 sockets
_SOCK_DIAG, _BY_FAMILY = 4, 20  # NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY
_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
_DONE, _ERROR = 3, 2  # NLMSG_DONE, NLMSG_ERROR
_ALL_STATES = 0xFFFFFFFF
_INFO, _PEER = 2, 2  # attributes: INET_DIAG_INFO, UNIX_DIAG_PEER
_SHOW_PEER = 4  # UDIAG_SHOW_PEER
_INET_INODE, _INET_HEAD, _UNIX_HEAD = 68, 72, 16  # in inet_diag_msg and unix_diag_msg
_ACKED = 120  # in tcp_info: bytes acknowledged by the peer, then bytes received; since Linux 4.1
_SOCKET = re.compile(r"socket:\[(\d+)\]$")


def tcp_bytes() -> dict[int, int] | None:
    """Return what each TCP socket has received and sent, by inode; None if that is not told."""
    found: dict[int, int] = {}
    for family in (socket.AF_INET, socket.AF_INET6):
        wish = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 1 << (_INFO - 1), 0, _ALL_STATES)
        answers = _dump(wish + bytes(48))
        if answers is None:
            return None
        for answer in answers:
            (inode,) = struct.unpack_from("=I", answer, _INET_INODE)
            info = _attributes(answer, _INET_HEAD).get(_INFO, b"")
            if len(info) >= _ACKED + 16:
                found[inode] = sum(struct.unpack_from("=QQ", info, _ACKED))
    return found


def unix_peers() -> dict[int, int]:
    """Return the other end of each connected Unix socket, by inode."""
    wish = struct.pack("=BBHIII8x", socket.AF_UNIX, 0, 0, _ALL_STATES, 0, _SHOW_PEER)
    found = {}
    for answer in _dump(wish) or []:
        (inode,) = struct.unpack_from("=I", answer, 4)
        peer = _attributes(answer, _UNIX_HEAD).get(_PEER, b"")
        if len(peer) >= 4:
            found[inode] = int.from_bytes(peer[:4], "little")
    return found


def sockets_of(pid: int) -> dict[int, int]:
    """Return the inodes of a process's sockets, by descriptor; none if it may not be seen."""
    found = {}
    with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
        for each in itertools.islice(entries, MOST_OPEN):
            with contextlib.suppress(OSError):
                name = _SOCKET.match(os.readlink(each.path))
                if name is not None:
                    found[int(each.name)] = int(name[1])
    return found


def _dump(wish: bytes) -> list[bytes] | None:
    """Ask the kernel for all sockets of a kind; None if it does not answer such questions."""
    message = struct.pack("=IHHII", 16 + len(wish), _BY_FAMILY, _DUMP, 1, 0) + wish
    answers: list[bytes] = []
    read = 0
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
            kernel.settimeout(ANSWER_S)
            kernel.send(message)
            while read < MOST_BYTES:
                data = kernel.recv(1 << 18)
                read += len(data)
                for kind, body in _messages(data):
                    if kind == _DONE:
                        return answers
                    if kind == _ERROR:
                        return None
                    answers.append(body)
    except (OSError, struct.error):
        return None
    return answers


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= 16:
        length, kind = struct.unpack_from("=IH", data)
        if length < 16:
            return
        yield kind, data[16:length]
        data = data[(length + 3) & ~3 :]


def _attributes(message: bytes, head: int) -> dict[int, bytes]:
    found = {}
    at = head
    while at + 4 <= len(message):
        length, kind = struct.unpack_from("=HH", message, at)
        if length < 4:
            break
        found[kind] = message[at + 4 : at + length]
        at += (length + 3) & ~3
    return found
