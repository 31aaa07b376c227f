"""No process gets a signal for having the number that one of ours had."""

from __future__ import annotations

import ast
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import antifreeze
from antifreeze import DataLoader

from ..patience import PATIENCE_S
from ..rogues.clean import another_thread

SOURCE = Path(antifreeze.__file__).parent
# To this process itself, of which the number cannot be another's.
TO_THEMSELVES = {"_engine/iterator.py", "cli/run_report.py"}
# To the group of a child that is not reaped yet: until then nobody else gets its number.
TO_GROUPS_OF_CHILDREN = {"cli/gpu_check/bounded_processes.py"}


def test_only_signals_to_the_process_itself_go_by_number() -> None:
    by_number = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in ("kill", "killpg"):
                is_os = isinstance(node.value, ast.Name) and node.value.id == "os"
                by_number |= {str(path.relative_to(SOURCE))} if is_os else set()
    assert by_number == TO_THEMSELVES | TO_GROUPS_OF_CHILDREN


# Runs as the first process of a PID namespace, in which numbers can be chosen.
REUSED = """
import os, signal, subprocess, sys, time
from collections.abc import Callable
from pathlib import Path
from antifreeze._transport.descriptors import Descriptor
from antifreeze._worker import signal_handlers

PRINTS = "import signal; print(signal.sigwait({signal.SIGUSR1}), flush=True)"

def start():
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    try:
        return subprocess.Popen([sys.executable, "-c", PRINTS], stdout=subprocess.PIPE)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

main = start()
pidfd = os.pidfd_open(main.pid)
signal_handlers.pass_on([signal.SIGUSR1], Descriptor(pidfd))
os.kill(os.getpid(), signal.SIGUSR1)
print("the main process got", main.stdout.read().strip().decode())
main.wait()
Path("/proc/sys/kernel/ns_last_pid").write_text(str(main.pid - 1))
stranger = start()
assert stranger.pid == main.pid, (stranger.pid, main.pid)
os.kill(os.getpid(), signal.SIGUSR1)
time.sleep(0.2)
print("the stranger", "waits" if stranger.poll() is None else "was hit")
stranger.kill()
stranger.wait()
child = os.fork()
if not child:
    os.kill(os.getpid(), signal.SIGUSR1)  # nothing is passed on, and nothing is raised
    os._exit(7)
print("a child ends with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_signals_are_not_passed_on_to_the_successor_of_the_main_process(tmp_path: Path) -> None:
    if shutil.which("unshare") is None or os.geteuid() != 0:
        pytest.skip("numbers of processes can be chosen by root alone, with unshare")
    script = tmp_path / "reused.py"
    script.write_text(REUSED)
    separate = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if subprocess.run([*separate, "true"], capture_output=True).returncode:
        pytest.skip("no PID namespace can be made here")
    done = subprocess.run(
        [*separate, sys.executable, str(script)], capture_output=True, timeout=PATIENCE_S, text=True
    )
    assert done.stdout.splitlines() == [
        f"the main process got {int(signal.SIGUSR1)}",
        "the stranger waits",
        "a child ends with 7",
    ], done.stderr


class Signals:
    """Sends its parent a signal."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> int:
        if index == 1:
            os.kill(os.getppid(), signal.SIGUSR2)
        return index


@pytest.mark.parametrize("between", [contextlib.nullcontext, another_thread])
def test_a_signal_to_a_workers_parent_reaches_the_main_process(
    between: Callable[[], contextlib.AbstractContextManager[None]],
) -> None:
    """Its parent is the main process, or one that stands between, if there is a thread."""
    got: list[int] = []
    before = signal.signal(signal.SIGUSR2, lambda number, frame: got.append(number))
    try:
        with between():
            list(DataLoader(Signals(), num_workers=1))
            deadline = time.monotonic() + PATIENCE_S
            while not got and time.monotonic() < deadline:
                time.sleep(0.01)
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert got == [signal.SIGUSR2]
