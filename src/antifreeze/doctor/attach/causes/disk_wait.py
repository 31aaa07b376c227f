"""Somebody waits for a file whose disk, or whose server, does not answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...._linux.syscalls import OPENS, READS
from ...findings import Finding
from ..analyse.threads_and_processes import Actor, Scene, Strand
from ..analyse.waits import at_line, in_sample, loop_waits
from ..analyse.workers_by_loader import and_the_loop_waits
from .base import LIKELY, Cause, are, kill_worker, people

NAME = "disk-wait"
# Functions of the kernel in which a file system waits for its server or its disk.
_WAITS = ("request_wait_answer", "fuse_", "nfs", "rpc_wait", "cifs", "smb2_", "ceph", "lustre",
          "ll_file", "p9_", "folio_wait", "wait_on_page", "io_schedule", "wait_on_buffer",
          "xfs_buf", "jbd2_", "percpu_rwsem", "sb_start_write")  # fmt: skip


def find(scene: Scene) -> Iterator[Finding]:
    asked = [each for each in scene.living if _may_matter(scene, each)]
    if not loop_waits(scene) or not scene.main.main or scene.main.main.thread.state == "D":
        asked.append(scene.main)
    found = [
        (actor, strand)
        for actor in asked
        if (strand := actor.main) is not None and _rests(strand) and _waits(scene, strand)
    ]
    if not found:
        return
    actors = [actor for actor, _ in found]
    first = _with_frames(found[0][1])
    file = first.descriptor()
    mount = _mount(scene, file)
    what = f"the file {file}" if file.startswith("/") else "a disk"
    if mount:
        what += f", on {mount}"
    elif scene.machine.network_mounts and not file.startswith("/"):
        what += f" (network file systems here: {', '.join(scene.machine.network_mounts[:3])})"
    main = scene.main in actors
    place = f", {at_line(first)}" if first.frames else ""
    yield Finding(
        NAME,
        LIKELY,
        f"{people(actors)} {are(actors, 'waits', 'wait')} for {what}{place}: nothing has"
        " come from it between two looks" + ("" if main else and_the_loop_waits(scene, actors)),
        evidence=(
            *(
                f"{actor.label}: state {strand.thread.state}, in the kernel's"
                f" {strand.thread.waits_in or 'file system'}, no CPU in {scene.seconds:.1f} s"
                for actor, strand in found[:4]
            ),
            "two looks cannot tell a slow disk from a dead one: look again in a minute",
        ),
        get_out=(
            f"see whether the disk answers: timeout 5 ls {mount.partition(' ')[0] or '/'}; dmesg |"
            " tail    (changes nothing)",
            f"kill -9 {scene.main.pid}    (what is not saved is lost; one in state D ends only"
            " when its disk answers, or is unmounted: umount -f -l)"
            if main
            else kill_worker(actors),
        ),
        prevent=(
            "copy the data to a local disk before training; mount network file systems with a time"
            " limit (NFS: soft,timeo=600,retrans=2)",
        ),
        pids=tuple(actor.pid for actor in actors),
    )


def _may_matter(scene: Scene, worker: Actor) -> bool:
    if not loop_waits(scene):
        return False
    # Whoever waits for a disk cannot be stopped, so its stack may be missing.
    blind = worker.main is not None and not worker.main.frames
    return blind or in_sample(scene, worker)


def _rests(strand: Strand) -> bool:
    """Say that it has not moved, as far as both looks can tell; the stack of one may be missing."""
    return _with_frames(strand).stuck


def _waits(scene: Scene, strand: Strand) -> bool:
    thread = strand.thread
    asleep = strand.before is not None and strand.before.state == thread.state == "D"
    if asleep or any(thread.waits_in.startswith(each) for each in _WAITS):
        return True
    call = thread.call[0] if thread.call else -1
    file = strand.descriptor()
    return call in READS | OPENS and bool(_mount(scene, file))


def _with_frames(strand: Strand) -> Strand:
    """Give a thread with the stack of the first look, where the second could take none."""
    if strand.thread.frames or strand.before is None:
        return strand
    return replace(strand, thread=replace(strand.thread, frames=strand.before.frames))


def _mount(scene: Scene, file: str) -> str:
    """Give the network file system that a file is on: "/data (nfs4)"."""
    if not file.startswith("/"):
        return ""
    found = [
        each for each in scene.machine.network_mounts if _within(file, each.rpartition(" ")[0])
    ]
    return max(found, key=len, default="")


def _within(file: str, folder: str) -> bool:
    return file == folder or file.startswith(folder.rstrip("/") + "/")


CAUSE = Cause(NAME, find, may_be_slow=True)
