"""`antifreeze attach`: what it prints, writes, reads and refuses; and that it needs no torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from antifreeze.cli import main

from ..patience import PATIENCE_S

CASES = Path(__file__).parent.parent / "doctor" / "cases"
STUCK = CASES / "lock_held_at_fork.json"
WELL = CASES / "well_and_busy.json"


@pytest.fixture
def sleeper() -> Iterator[int]:
    """A Python program that waits, at a line that is known."""
    code = "import time\ndef rest():\n    time.sleep(600)\nprint('there', flush=True)\nrest()"
    secret = os.environ | {"API_KEY": "hunter2", "OMP_NUM_THREADS": "3"}
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=secret)
    assert process.stdout is not None and process.stdout.readline() == b"there\n"
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_the_answer_is_a_sentence_then_what_it_rests_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["attach", "--case", str(STUCK)]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "Workers 0 and 1 wait for a lock that nobody in them holds" in out
    places = [out.index(each) for each in ("likely", "evidence", "to get out now", "prevent it")]
    assert places == sorted(places)
    assert "kill -9 " in out and "who does what" in out


def test_nothing_stuck_is_said_and_is_exit_code_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["attach", "--case", str(WELL)]) == 0
    assert "Nothing is stuck" in capsys.readouterr().out


def test_a_standstill_that_nobody_can_name_is_exit_code_3(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("antifreeze.doctor.attach.diagnose.all_causes", lambda: ())
    assert main(["attach", "--case", str(STUCK)]) == 3
    out = " ".join(capsys.readouterr().out.split())
    assert out.startswith("process") and "Nobody has moved between two looks" in out
    assert "who does what" in out
    assert main(["attach", "--json", "--case", str(STUCK)]) == 3
    said = json.loads(capsys.readouterr().out)
    assert (said["stuck"], said["still"]) == (False, True)


def test_the_page_of_a_cause_is_told_as_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["attach", "--case", str(STUCK)]) == 1
    assert "(antifreeze explain lock-held-at-fork)" in capsys.readouterr().out


def test_json_has_all_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["attach", "--json", "--case", str(STUCK)]) == 1
    said = json.loads(capsys.readouterr().out)
    found = said["programs"][0]["findings"][0]
    assert said["stuck"] is True
    assert found["rule"] == "lock-held-at-fork" and found["confidence"] in ("certain", "likely")
    assert found["evidence"] and found["get_out"] and found["prevent"] and found["pids"]


def test_a_program_is_looked_at_and_what_was_seen_is_written_without_secrets(
    sleeper: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "case.json"
    assert main(["attach", str(sleeper), "--save", str(path)]) == 0
    assert "rest (<string>:3)" in " ".join(capsys.readouterr().out.split())
    text = path.read_text()
    assert "hunter2" not in text and "API_KEY" not in text
    assert '"OMP_NUM_THREADS":"3"' in text
    assert main(["attach", "--case", str(path)]) == 0
    assert "rest (<string>:3)" in " ".join(capsys.readouterr().out.split())


def test_without_py_spy_proc_speaks_and_the_way_to_more_is_told(
    sleeper: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "antifreeze.doctor.attach.gather.py_spy.PySpy.find", staticmethod(lambda: None)
    )
    assert main(["attach", str(sleeper)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "its stacks could not be taken" in out and "nanosleep" in out
    assert "pip install py-spy" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "say which process"),
        (["1", "--case", "x"], "say which process"),
        (["--case", "missing.json"], "cannot be read: No such file"),
        (["--case", __file__], "is no case: it is not JSON"),
        (["--case", str(STUCK), "--watch"], "nothing to watch"),
        (["-5"], "is no process"),
        (["4194303"], "there is no process 4194303"),
        (["1", "--watch", "0"], "more than 0"),
    ],
)
def test_what_cannot_be_looked_at_is_said(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if arguments == ["-5"]:
        arguments = ["--", "-5"]
    assert main(["attach", *arguments]) == 2
    captured = capsys.readouterr()
    assert words in captured.err and captured.out == ""
    assert "Traceback" not in captured.err


def test_what_is_no_python_program_is_refused_and_its_python_child_looked_at(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            assert main(["attach", str(process.pid)]) == 2
            words = f"process {process.pid} is no Python program (sleep ***)"  # it may be a secret
            assert words in capsys.readouterr().err
        finally:
            process.kill()
    one = f"{sys.executable} -c 'import time; print(flush=True); time.sleep(600)' &"
    shell = ["sh", "-c"]
    options: dict[str, Any] = {"start_new_session": True, "stdout": subprocess.PIPE}
    with subprocess.Popen([*shell, f"{one} wait"], **options) as process:
        try:
            process.stdout.readline()
            assert main(["attach", str(process.pid)]) == 0
            assert "the loop sleeps on purpose" in " ".join(capsys.readouterr().out.split())
        finally:
            os.killpg(process.pid, 9)
    with subprocess.Popen([*shell, f"{one} {one} wait"], **options) as process:
        try:
            process.stdout.readline()
            process.stdout.readline()
            assert main(["attach", str(process.pid)]) == 2
            assert "it has started 2: antifreeze attach " in capsys.readouterr().err
        finally:
            os.killpg(process.pid, 9)


def test_the_number_of_a_thread_stands_for_its_program(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = "import threading, time\nthreading.Thread(target=time.sleep, args=(600,)).start()"
    code += "\nprint(flush=True)\ntime.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            threads = [int(each) for each in os.listdir(f"/proc/{process.pid}/task")]
            assert main(["attach", str(max(threads))]) == 0
            assert f"process {process.pid}" in capsys.readouterr().out
        finally:
            process.kill()


def test_one_that_has_ended_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    process = subprocess.Popen(["true"])
    time.sleep(0.5)  # dead, and not yet waited for
    assert main(["attach", str(process.pid)]) == 2
    assert "has ended (a zombie)" in capsys.readouterr().err
    process.wait()


def test_watching_says_something_when_the_answer_changes_and_ends_with_the_program(
    sleeper: int,
) -> None:
    program = [sys.executable, "-m", "antifreeze", "attach", str(sleeper), "--watch", "0.2"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        first = process.stdout.readline()
        assert first.startswith(b"== ")
        time.sleep(3.0)  # some looks more, with nothing new to say
        os.kill(sleeper, 9)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert b"== " not in out, out
    assert process.returncode == 2 and b"has ended" in err


def test_no_torch_is_imported_and_it_starts_at_once() -> None:
    """The promise is half a second; the bound is five times that, for a busy machine."""
    code = f"""
        import sys, time
        from antifreeze.cli import main
        main(["attach", "--case", {str(STUCK)!r}])
        assert "torch" not in sys.modules and "numpy" not in sys.modules
        print(time.process_time(), file=sys.stderr)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stderr) < 2.5
