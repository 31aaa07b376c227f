"""What this platform has of what we need."""

from __future__ import annotations

import os
import socket

SWITCH = "ANTIFREEZE"  # environment variable; "off" gives torch's own loader back


# Under /proc/self: what workers are started and given memory by. All else there is evidence, and
# may be missing.
_PROC_FILES = ("fd", "maps", "statm", "status", "task")
# This process runs the program's script a second time, to have what is in it (see `user_code`).
runs_script_again = False
# This process was made for the workers of a loader, whose own process looks after it.
serves_a_loader = False


_ENCODED = os.fsencode(SWITCH)
_Environ = os._Environ


def switched_off() -> bool:
    try:  # where it is not set, to have the name encoded takes longer than all else
        if type(environ := os.environ) is _Environ and _ENCODED not in environ._data:  # type: ignore[attr-defined]
            return False
    except (AttributeError, TypeError):  # no longer what it is in CPython
        pass
    value = os.environ.get(SWITCH)
    return value is not None and value.strip().lower() in {"off", "0", "no", "false"}


def missing() -> tuple[str, ...]:
    """Name what this platform lacks; nothing missing means we can do our work."""
    needs = {
        "pidfd_open (Linux 5.3)": hasattr(os, "pidfd_open"),
        "memfd_create (Linux 3.17)": hasattr(os, "memfd_create"),
        "eventfd": hasattr(os, "eventfd"),
        "passing descriptors over a socket": hasattr(socket, "recv_fds")
        and hasattr(socket, "MSG_CMSG_CLOEXEC"),
    }
    lacking = [name for name, there in needs.items() if not there]
    if not lacking:
        try:  # the interpreter knows the call; the kernel or a sandbox may refuse it
            os.close(os.pidfd_open(os.getpid()))
        except OSError as error:
            lacking.append(f"pidfd_open ({error.strerror})")
        if wrong := _proc_fault():
            lacking.append(wrong)
    return tuple(lacking)


def _proc_fault() -> str:
    """Return what is wrong with /proc, or nothing. A chroot may have none; a sandbox may show that
    of another PID namespace, where a worker's number is some other process's."""
    try:
        own = os.readlink("/proc/self")
    except OSError:
        return "/proc (it is not mounted)"
    if own != str(os.getpid()):
        return "/proc of its own PID namespace"
    hidden = [name for name in _PROC_FILES if not os.access(f"/proc/self/{name}", os.R_OK)]
    return f"/proc/self/{hidden[0]}" if hidden else ""
