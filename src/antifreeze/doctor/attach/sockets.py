"""Who is at the other end of a socket: the kernel's tables, read once a look."""

from __future__ import annotations

import contextlib
import ipaddress
import re
from pathlib import Path

_INODE = re.compile(r"socket:\[(\d+)\]$")
_STATES = {"01": "", "02": " (connecting)", "06": " (closed)", "08": " (closed by the peer)"}


class Sockets:
    """Give sockets a name. `pid`: whose network namespace it is."""

    def __init__(self, pid: int) -> None:
        self._names: dict[str, str] = {}
        net = Path(f"/proc/{pid}/net")
        for kind in ("tcp", "tcp6", "udp", "udp6"):
            with contextlib.suppress(OSError):
                for line in (net / kind).read_text().splitlines()[1:]:
                    fields = line.split()
                    self._names[fields[9]] = _internet(kind, fields[1], fields[2], fields[3])
        with contextlib.suppress(OSError):
            for line in (net / "unix").read_text(errors="replace").splitlines()[1:]:
                fields = line.split(maxsplit=7)
                path = fields[7] if len(fields) > 7 else ""
                self._names[fields[6]] = f"unix {path}".strip()

    def name(self, target: str) -> str:
        """Give what a descriptor leads to, in words where it is a socket."""
        found = _INODE.match(target)
        return self._names.get(found[1], target) if found else target


def _internet(kind: str, here: str, there: str, state: str) -> str:
    if state == "0A":
        return f"{kind[:3]} {_address(here)} (listening)"
    return f"{kind[:3]} {_address(here)} -> {_address(there)}{_STATES.get(state, '')}"


def _address(text: str) -> str:
    host, _, port = text.partition(":")
    words = [bytes.fromhex(host[at : at + 8])[::-1] for at in range(0, len(host), 8)]
    address = ipaddress.ip_address(b"".join(words))
    mapped = getattr(address, "ipv4_mapped", None)
    shown = mapped or address
    return f"[{shown}]:{int(port, 16)}" if shown.version == 6 else f"{shown}:{int(port, 16)}"
