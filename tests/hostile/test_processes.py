"""`antifreeze attach` and processes that are made to hang, flood or deceive who looks at them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ..doctor.patient_programs import blindness
from .stage import (
    ESCAPES,
    FORBIDDEN,
    antifreeze,
    dead_file_system,
    needs_root,
    on_a_terminal,
    victim,
)

SLEEPS = """
import time
print("there", flush=True)
time.sleep(600)
"""
MEGABYTE = 1 << 20


def test_a_socket_of_anybody_with_a_line_end_in_its_name_ends_no_look() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as squatter, victim(SLEEPS) as pid:
        squatter.bind("\0two\nlines of\n" + "x" * 40)
        ran = antifreeze("attach", str(pid))
    assert ran.code != 2 and "Traceback" not in ran.text
    assert f"process {pid}" in ran.out


def test_a_socket_cannot_write_the_line_of_another_one() -> None:
    """Its name holds a line of the table that gives the victim's own socket another name."""
    code = """
    import socket, time
    mine = socket.socket(socket.AF_UNIX); mine.bind("\\0the-real-name"); mine.listen()
    print("there", flush=True)
    mine.accept()
    """
    with victim(code) as pid:
        inode = next(
            os.readlink(f"/proc/{pid}/fd/{each}")[8:-1]
            for each in os.listdir(f"/proc/{pid}/fd")
            if os.readlink(f"/proc/{pid}/fd/{each}").startswith("socket:")
        )
        forged = f"\n{0:016x}: 00000002 00000000 00010000 0001 01 {inode} @evil\n"
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as squatter:
            squatter.bind(f"\0{forged}")
            table = Path("/proc/net/unix").read_text(errors="replace")
            assert f" {inode} @evil\n" in table
            ran = antifreeze("attach", str(pid), "--json", hurried=True)
    assert "evil" not in ran.out


MAPS = """
import mmap, os, sys, time
file = open(sys.argv[1], "r+b")
kept = mmap.mmap(file.fileno(), 4096)
file.close()
exec(sys.argv[2])
print("there", flush=True)
time.sleep(600)
"""


ANOTHER = {
    "FIFO": "os.unlink(sys.argv[1]); os.mkfifo(sys.argv[1])",
    "sparse": "os.truncate(sys.argv[1], 3 << 30)",
    "device": "os.unlink(sys.argv[1]); os.symlink('/dev/zero', sys.argv[1])",
    "as it was": "",
}


@pytest.mark.parametrize(
    ("name", "then"),
    [
        *(("libc.so.6", each) for each in ANOTHER),
        ("libc.so\x0cform feed", "FIFO"),
        ("libc-\x85\u2028.so", "sparse"),
    ],
)
def test_a_mapped_file_may_be_anything_by_now(name: str, then: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(b"\x7fELF\x02\x01" + bytes(8192))
    with victim(MAPS, str(path), ANOTHER[then]) as pid:
        ran = antifreeze("attach", str(pid))
    assert ran.code != 2, ran.text
    assert ran.largest < 500 * MEGABYTE


def test_a_program_that_is_no_python_is_named_without_what_means_something_to_a_terminal() -> None:
    command = ["sleep", "600"]
    with subprocess.Popen([f"sl{ESCAPES}eep", "600"], executable="/bin/sleep") as process:
        try:
            ran = antifreeze("attach", str(process.pid))
            seen = on_a_terminal("attach", str(process.pid))
        finally:
            process.kill()
    assert command and ran.code == 2
    assert "no Python program" in ran.err
    assert not [each for each in FORBIDDEN if each in ran.text]
    assert "owned" in seen and "\x1b]0;owned" not in seen


# Names of functions, files, threads, sockets and open files, all of the attacker's choice.
DECEIVES = """
import os, socket, sys, threading, time
evil, folder = sys.argv[1], sys.argv[2]
os.chdir(folder)
kept = open(f"open {evil}::error::x", "w")
hole = socket.socket(socket.AF_UNIX); hole.bind(f"\\0{evil}"); hole.listen()
libc = __import__("ctypes").CDLL(None)
libc.prctl(15, evil.encode()[:15], 0, 0, 0)
def wait(): time.sleep(600)
code = wait.__code__.replace(co_name=evil, co_qualname=evil, co_filename=f"/tmp/{evil}.py")
threading.Thread(target=type(wait)(code, globals()), name=f"##vso[{evil}]", daemon=True).start()
print("there", flush=True)
hole.accept()
"""


@pytest.mark.parametrize("form", [(), ("--json",)], ids=["text", "json"])
def test_no_name_of_its_making_means_anything_to_a_terminal(
    form: tuple[str, ...], tmp_path: Path
) -> None:
    with victim(DECEIVES, ESCAPES, str(tmp_path)) as pid:
        saved = ("--save", str(tmp_path / "case.json"))
        ran = antifreeze("attach", str(pid), *form, *saved, hurried=True)
        again = antifreeze("attach", "--case", str(tmp_path / "case.json"), *form)
    for each in (ran, again):
        assert each.code != 2, each.text
        assert not [one for one in FORBIDDEN if one in each.text]
        assert not [line for line in each.text.split("\n") if line.lstrip().startswith("::")]
    assert (ran.code, ran.out) == (again.code, again.out)


@needs_root
def test_folders_that_never_answer_cost_a_second_and_not_the_answer(tmp_path: Path) -> None:
    with dead_file_system(tmp_path / "dead") as dead:
        code = f"""
        import os, time
        os.environ["TMPDIR"] = {str(dead / "temporary")!r}
        def wait(): time.sleep(600)
        wait.__code__ = wait.__code__.replace(co_filename={str(dead / "train.py")!r})
        print("there", flush=True)
        wait()
        """
        with victim(code) as pid:
            began = time.monotonic()
            ran = antifreeze("attach", str(pid))
            took = time.monotonic() - began
    assert ran.code != 2, ran.text
    assert took < 60  # some twelve seconds, most of them watching


DEEP = """
import sys, time
sys.setrecursionlimit(10**9)
def deeper(left):
    if not left:
        print("there", flush=True)
        time.sleep(600)
    deeper(left - 1)
deeper(200_000)
"""
MANY_THREADS = """
import threading, time
threading.stack_size(32768)
for _ in range(1500):
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
print("there", flush=True)
time.sleep(600)
"""
MANY_FILES = """
import os, resource, time
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
number = os.open("/dev/null", os.O_RDONLY)
for _ in range(min(100_000, most - 50)): os.dup(number)
print("there", flush=True)
time.sleep(600)
"""
MANY_MAPPINGS = """
import ctypes, os, time
libc = ctypes.CDLL(None)
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
file = os.open("/etc/passwd", os.O_RDONLY)
for _ in range(30_000):
    libc.mmap(None, 4096, 1, 1, file, 0)
print("there", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize(
    "code",
    [DEEP, MANY_THREADS, MANY_FILES, MANY_MAPPINGS],
    ids=["deep", "threads", "files", "mappings"],
)
def test_who_has_more_than_anybody_needs_is_looked_at_within_bounds(code: str) -> None:
    with victim(code) as pid:
        ran = antifreeze("attach", str(pid))
    assert "Traceback" not in ran.text and "bug" not in ran.text
    assert ran.code in (0, 1, 3), ran.text
    assert ran.largest < 1000 * MEGABYTE


def test_of_very_many_threads_the_main_one_is_seen() -> None:
    if reason := blindness():
        pytest.skip(f"stacks cannot be taken here: {reason}")
    code = f"{MANY_THREADS[: MANY_THREADS.rindex('time.sleep')]}def stuck_here(): time.sleep(600)"
    with victim(f"{code}\nstuck_here()") as pid:
        ran = antifreeze("attach", str(pid))
    assert "stuck_here" in ran.out
    assert "only 1000 of the 1501 threads" in " ".join(ran.out.split())


def test_secrets_in_urls_are_neither_shown_nor_saved(tmp_path: Path) -> None:
    code = """
    import os, socket, time
    url = "https://jo:hunter2@host/bucket?X-Amz-Signature=abcdef0123"
    os.makedirs(url); kept = open(url + "/file.bin", "w")
    hole = socket.socket(socket.AF_UNIX); hole.bind("\\0" + url[:100]); hole.listen()
    print("there", flush=True)
    hole.accept()
    """
    saved = tmp_path / "case.json"
    with victim(code, folder=tmp_path) as pid:
        ran = antifreeze("attach", str(pid), "--json", "--save", str(saved), hurried=True)
    assert "hunter2" not in ran.text + saved.read_text()
    assert "abcdef0123" not in ran.text + saved.read_text()
    assert "host/bucket" in saved.read_text()


@needs_root
def test_a_saved_case_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "case.json"
    with victim(SLEEPS) as pid:
        assert antifreeze("attach", str(pid), "--save", str(path)).code != 2
        assert path.stat().st_mode & 0o777 == 0o600
        path.chmod(0o666)
        assert antifreeze("attach", str(pid), "--save", str(path)).code != 2
        assert path.stat().st_mode & 0o777 == 0o600
        assert json.loads(path.read_text())["asked"] == pid
        # Somebody else has put something there for us to write to. The answer is told all the same.
        protected = tmp_path / "protected"
        protected.write_text("precious")
        path.unlink()
        path.symlink_to(protected)
        ran = antifreeze("attach", str(pid), "--save", str(path))
        assert (ran.code, protected.read_text()) == (2, "precious") and str(pid) in ran.out
        path.unlink()
        os.mkfifo(path)
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        assert antifreeze("attach", str(pid), "--save", str(path)).code == 2
        assert os.read(reader, 100) == b""
        os.close(reader)
        path.unlink()
        path.write_text("theirs")
        os.chown(path, 65534, 65534)
        ran = antifreeze("attach", str(pid), "--save", str(path))
        assert (ran.code, path.read_text()) == (2, "theirs")
        assert ran.err.count("\n") == 1 and "another user" in ran.err


@needs_root
def test_a_server_that_takes_the_question_and_never_answers_keeps_nobody(tmp_path: Path) -> None:
    """Who waits for such a one cannot be ended at all, so that it must not be the command."""
    with dead_file_system(tmp_path / "dead", listens=True) as dead:
        code = f"""
        import os, time
        os.environ["TMPDIR"] = {str(dead / "temporary")!r}
        print("there", flush=True)
        time.sleep(600)
        """
        with victim(code) as pid:
            ran = antifreeze("attach", str(pid))
    assert ran.code != 2, ran.text


SOURCE_BOMB = """
import sys, threading, time
lock = threading.Lock()
lock.acquire()
def take():
    with lock:
        pass
take.__code__ = take.__code__.replace(co_filename=sys.argv[1])
threading.Thread(target=take, daemon=True).start()
print("there", flush=True)
take()
"""


def test_source_that_takes_the_parser_long_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "bomb.py"
    path.write_text("x = f'" + "{a}" * 130_000 + "'\n")
    with victim(SOURCE_BOMB, str(path)) as pid:
        began = time.monotonic()
        ran = antifreeze("attach", str(pid))
        assert time.monotonic() - began < 60
    assert ran.code != 2, ran.text


@needs_root
def test_root_asks_the_program_of_another_user_about_it_and_writes_nothing_of_its_own(
    tmp_path: Path,
) -> None:
    """A mailbox that is none, and one that turns into a FIFO, a device, or another one."""
    code = """
    import os, struct, sys, threading, time, zlib
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
    box = os.memfd_create("antifreeze-attach", os.MFD_ALLOW_SEALING)
    os.ftruncate(box, 1 << 21)
    os.pwrite(box, struct.pack("<8sQQQQQ", b"antifrz1", os.getpid(), 0, 0, 0, 0), 0)
    body = b"[" * 200_000
    def answer():
        number = 0
        while True:
            number += 2
            os.pwrite(box, body, 64)
            os.pwrite(box, struct.pack("<QQQ", len(body), zlib.crc32(body), number), 24)
            time.sleep(0.01)
    threading.Thread(target=answer, daemon=True).start()
    print("there", flush=True)
    time.sleep(600)
    """
    with victim(code) as pid:
        ran = antifreeze("attach", str(pid))
    assert ran.code != 2, ran.text
    assert "cannot be read" in " ".join(ran.out.split())


def test_what_goes_wrong_all_the_same_is_one_line_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from antifreeze.cli import main

    def fail(*_: object) -> None:
        raise IndexError(f"no such {ESCAPES} thing\nat all")

    monkeypatch.setattr("antifreeze.doctor.attach.gather.collect.look_at", fail)
    assert main(["attach", str(os.getpid())]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1
    assert "IndexError (test_processes.py:" in said.err and "please report it" in said.err
    assert not [each for each in FORBIDDEN if each in said.err]


def test_stacks_are_still_taken() -> None:
    """None of the above is safe only because nothing is seen."""
    if reason := blindness():
        pytest.skip(f"stacks cannot be taken here: {reason}")
    code = SLEEPS.replace("time.sleep(600)", "def rests(): time.sleep(600)\nrests()")
    with victim(code) as pid:
        assert "rests" in antifreeze("attach", str(pid)).out


def test_the_command_itself_needs_no_torch() -> None:
    code = "import sys, antifreeze.doctor.attach.gather.collect; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "False\n"
