"""Somebody waits for a file whose disk, or whose server, does not answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...._linux.syscalls import OPENS, READS
from ...findings import Finding
from ..analyse.threads_and_processes import Program, WatchedProcess, WatchedThread
from ..analyse.waits import at_line, in_sample, loop_waits
from ..analyse.workers_by_loader import and_the_loop_waits
from .base import LIKELY, Cause, kill_worker, names_of, plural

NAME = "disk-wait"
# Functions of the kernel in which a file system waits for its server or its disk.
_WAITS = ("request_wait_answer", "fuse_", "nfs", "rpc_wait", "cifs", "smb2_", "ceph", "lustre",
          "ll_file", "p9_", "folio_wait", "wait_on_page", "io_schedule", "wait_on_buffer",
          "xfs_buf", "jbd2_", "percpu_rwsem", "sb_start_write")  # fmt: skip


def find(program: Program) -> Iterator[Finding]:
    asked = [each for each in program.living if _may_matter(program, each)]
    if not loop_waits(program) or not program.main.main or program.main.main.now.state == "D":
        asked.append(program.main)
    found = [
        (process, thread)
        for process in asked
        if (thread := process.main) is not None and _rests(thread) and _waits(program, thread)
    ]
    if not found:
        return
    processes = [process for process, _ in found]
    first = _with_frames(found[0][1])
    file = first.descriptor()
    mount = _mount(program, file)
    what = f"the file {file}" if file.startswith("/") else "a disk"
    if mount:
        what += f", on {mount}"
    elif program.machine.network_mounts and not file.startswith("/"):
        what += f" (network file systems here: {', '.join(program.machine.network_mounts[:3])})"
    main = program.main in processes
    place = f", {at_line(first)}" if first.frames else ""
    yield Finding(
        NAME,
        LIKELY,
        f"{names_of(processes)} {plural(processes, 'waits', 'wait')} for {what}{place}: nothing has"
        " come from it between two looks"
        + ("" if main else and_the_loop_waits(program, processes)),
        evidence=(
            *(
                f"{process.label}: state {thread.now.state}, in the kernel's"
                f" {thread.now.waits_in or 'file system'}, no CPU in {program.seconds:.1f} s"
                for process, thread in found[:4]
            ),
            "two looks cannot tell a slow disk from a dead one: look again in a minute",
        ),
        get_out=(
            f"see whether the disk answers: timeout 5 ls {mount.partition(' ')[0] or '/'}; dmesg |"
            " tail    (changes nothing)",
            f"kill -9 {program.main.pid}    (what is not saved is lost; one in state D ends only"
            " when its disk answers, or is unmounted: umount -f -l)"
            if main
            else kill_worker(processes),
        ),
        prevent=(
            "copy the data to a local disk before training; mount network file systems with a time"
            " limit (NFS: soft,timeo=600,retrans=2)",
        ),
        pids=tuple(process.pid for process in processes),
    )


def _may_matter(program: Program, worker: WatchedProcess) -> bool:
    if not loop_waits(program):
        return False
    # Whoever waits for a disk cannot be stopped, so its stack may be missing.
    blind = worker.main is not None and not worker.main.frames
    return blind or in_sample(program, worker)


def _rests(thread: WatchedThread) -> bool:
    """Whether it has not moved, as far as both looks can tell; the stack of one may be missing."""
    return _with_frames(thread).stuck


def _waits(program: Program, thread: WatchedThread) -> bool:
    before, now = thread.before, thread.now
    asleep = before is not None and before.state == now.state == "D"
    if asleep or any(now.waits_in.startswith(each) for each in _WAITS):
        return True
    call = now.call[0] if now.call else -1
    file = thread.descriptor()
    return call in READS | OPENS and bool(_mount(program, file))


def _with_frames(thread: WatchedThread) -> WatchedThread:
    """Return a thread with the stack of the first look, where the second could take none."""
    if thread.now.frames or thread.before is None:
        return thread
    return replace(thread, now=replace(thread.now, frames=thread.before.frames))


def _mount(program: Program, file: str) -> str:
    """Return the network file system that a file is on: "/data (nfs4)"."""
    if not file.startswith("/"):
        return ""
    found = [
        each for each in program.machine.network_mounts if _within(file, each.rpartition(" ")[0])
    ]
    return max(found, key=len, default="")


def _within(file: str, folder: str) -> bool:
    return file == folder or file.startswith(folder.rstrip("/") + "/")


CAUSE = Cause(NAME, find, may_be_slow=True)
