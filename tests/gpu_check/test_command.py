"""The command: processes that hang or crash are results, and the report is what the pages say."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from antifreeze.cli.gpu_check import command, report
from antifreeze.cli.gpu_check.machine import Machine
from antifreeze.cli.gpu_check.one_check import DDP
from antifreeze.cli.gpu_check.outcomes import Outcome, Verdict, failed, ok, skipped

from ..members import new_mark, settled
from ..patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
CPU = Machine("", "cpu", 0, "CPU", "2.13.0", "3.11.7", "0.1.0")


def script(text: str, others: str | None = None) -> command.Command:
    """Return how to start a script in place of a check; `others`: on all ranks but the first."""

    def start(name: str, device: str, answer: Path, more: Sequence[str]) -> Sequence[str]:
        chosen = text if others is None or more[1] == "0" else others
        return [sys.executable, "-c", chosen, str(answer)]

    return start


def test_a_check_that_hangs_is_ended_and_reported_with_its_stacks() -> None:
    hangs = (
        "import faulthandler, signal, time\n"
        "faulthandler.register(signal.SIGUSR1)\n"
        "def waits_for_the_driver(): time.sleep(1000)\n"
        "waits_for_the_driver()"
    )
    begun = time.monotonic()
    answers = command.ask("copies", "cpu", bound_s=3.0, command=script(hangs))
    assert answers.problem is not None
    assert (answers.problem.verdict, answers.problem.summary) == (
        Verdict.FAILED,
        "no answer in 3 s",
    )
    assert "waits_for_the_driver" in answers.problem.detail
    assert time.monotonic() - begun < 5 * 3.0


def test_what_a_hanging_check_has_started_is_ended_too(monkeypatch: pytest.MonkeyPatch) -> None:
    mark = new_mark()
    for name, value in mark.items():
        monkeypatch.setenv(name, value)
    hangs = "import os, time; os.fork(); print('two'); time.sleep(1000)"
    answers = command.ask("copies", "cpu", bound_s=3.0, command=script(hangs))
    assert answers.problem is not None and answers.problem.summary == "no answer in 3 s"
    assert settled(mark) == ()


def test_a_check_that_crashes_is_reported_by_its_signal() -> None:
    crashes = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    answers = command.ask("copies", "cpu", command=script(crashes))
    assert answers.problem is not None and answers.problem.summary == "crashed: SIGSEGV"


def test_a_check_that_raises_is_reported_by_its_last_line() -> None:
    answers = command.ask("copies", "cpu", command=script("raise RuntimeError('no driver')"))
    assert answers.problem is not None
    assert answers.problem.summary == "error: RuntimeError: no driver"
    assert "Traceback" in answers.problem.detail


def test_a_check_that_ends_well_without_an_answer_has_failed() -> None:
    answers = command.ask("copies", "cpu", command=script("print('done')"))
    assert answers.problem is not None and answers.problem.summary == "no answer"


def test_a_rank_that_fails_ends_the_wait_of_the_others() -> None:
    both = script("import time; time.sleep(1000)", others="raise RuntimeError('rank 1 is gone')")
    begun = time.monotonic()
    answers = command.ask(DDP, "cpu", ranks=2, command=both)
    assert answers.problem is not None
    assert answers.problem.summary == "error: RuntimeError: rank 1 is gone"
    assert time.monotonic() - begun < command.BOUND_S / 2


def test_on_a_cpu_two_ranks_train_with_gloo() -> None:
    outcome = command.check(DDP, CPU)
    assert (outcome.verdict, outcome.summary) == (Verdict.OK, "ok (gloo, 2 ranks)"), outcome


def test_a_check_in_its_own_process_gives_its_outcome() -> None:
    assert command.check("in workers", CPU) == ok("works")


def test_a_check_that_nobody_knows_is_an_error_and_not_ok() -> None:
    assert command.check("speed of light", CPU).summary == "error: KeyError: 'speed of light'"


def platform_gpu(*more: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "antifreeze", "platform", "--gpu", *more],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, **environment},
    )


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is an accelerator")
def test_without_an_accelerator_one_line_says_so_and_nothing_is_run() -> None:
    done = platform_gpu()
    assert done.returncode == command.CANNOT
    assert done.stdout == (
        "no accelerator: torch.accelerator.is_available() is False"
        f" (torch {torch.__version__}); there is nothing to check\n"
    )
    assert done.stderr == ""


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is an accelerator")
def test_without_an_accelerator_programs_are_told_in_json() -> None:
    done = platform_gpu("--json")
    assert done.returncode == command.CANNOT
    assert json.loads(done.stdout)["problem"].startswith("no accelerator: ")


def test_torchs_own_loader_is_not_checked_in_place_of_ours() -> None:
    done = platform_gpu(ANTIFREEZE="off")
    assert done.returncode == command.CANNOT
    assert done.stdout.startswith("antifreeze is switched off by ANTIFREEZE: ")


def test_a_platform_that_lacks_something_is_named_without_starting_anything() -> None:
    program = (
        "import os; del os.pidfd_open\n"
        "from antifreeze.cli import main\n"
        "raise SystemExit(main(['platform', '--gpu']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert (done.returncode, done.stderr) == (command.CANNOT, "")
    assert done.stdout.startswith("this platform lacks pidfd_open (Linux 5.3): ")
    assert len(done.stdout.splitlines()) == 1


def test_a_machine_that_cannot_be_looked_at_is_told() -> None:
    machine = command.look("no such device")
    assert machine.problem.startswith("cannot look for an accelerator: error: ")


def test_the_command_itself_does_not_import_torch() -> None:
    program = "import sys, antifreeze.cli.gpu_check.command; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


def test_ctrl_c_ends_the_processes_of_a_check() -> None:
    mark = new_mark()
    running = subprocess.Popen(
        [sys.executable, "-m", "antifreeze.cli.gpu_check", "--device", "cpu"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **mark},
    )
    assert running.stderr is not None
    with running.stderr:
        assert running.stderr.readline() == "checking pinning (1 of 6) ...\n"
        running.send_signal(signal.SIGINT)
        assert running.wait(PATIENCE_S) == command.INTERRUPTED
    assert settled(mark) == ()


@pytest.mark.thorough
def test_on_a_cpu_the_whole_command_ends_well_and_prints_its_row() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "antifreeze.cli.gpu_check", "--device", "cpu", "--json"],
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
    )
    assert done.returncode == command.FINE, done.stdout + done.stderr
    data = json.loads(done.stdout)
    verdicts = {name: each["verdict"] for name, each in data["checks"].items()}
    assert verdicts == {**dict.fromkeys(report.CHECK_COLUMNS, "ok"), "pinning": "skipped"}
    assert len(cells(data["row"])) == len(report.COLUMNS)
    assert done.stderr.startswith("checking pinning (1 of 6) ...\n  skipped: ")


def outcomes(**changed: Outcome) -> dict[str, Outcome]:
    names = {name: ok() for name in report.CHECK_COLUMNS}
    return {**names, **changed}


def cells(row: str) -> list[str]:
    assert row.startswith("| ") and row.endswith(" |") and "\n" not in row
    return row[2:-2].split(" | ")


def test_the_row_has_the_columns_of_its_table() -> None:
    row = report.markdown_row(report.Report(CPU, "2026-11-18", outcomes()))
    titles, rule = report.header().splitlines()
    assert len(cells(row)) == len(cells(titles)) == len(cells(rule)) == 11
    assert dict(zip(cells(titles), cells(row), strict=True)) == {
        "accelerator": "CPU",
        "torch": "2.13.0",
        "Python": "3.11.7",
        "antifreeze": "0.1.0",
        "date": "2026-11-18",
        **dict.fromkeys(report.CHECK_COLUMNS, "ok"),
    }


def test_words_of_an_error_cannot_break_the_row() -> None:
    nasty = failed("error: a | b\n| c\x1b[31m <img> " + "long " * 50)
    row = report.markdown_row(report.Report(CPU, "2026-11-18", outcomes(copies=nasty)))
    assert len(cells(row)) == 11
    assert "\x1b" not in row and "<" not in row and len(row) < 300


def test_a_skipped_check_is_fine_and_a_failed_one_is_not() -> None:
    assert report.Report(CPU, "", outcomes(pinning=skipped("no"))).is_fine
    assert not report.Report(CPU, "", outcomes(pinning=failed("no"))).is_fine


def test_json_has_every_check_and_the_row() -> None:
    made = report.Report(CPU, "2026-11-18", outcomes(copies=failed("wrong", "at 3")))
    data = json.loads(report.as_json(made))
    assert data["fine"] is False
    assert list(data["checks"]) == list(report.CHECK_COLUMNS)
    assert data["checks"]["copies"] == {"verdict": "failed", "summary": "wrong", "detail": "at 3"}
    assert data["row"] == report.markdown_row(made)


def test_the_table_for_people_shows_what_failed_and_the_row(
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = report.Report(CPU, "2026-11-18", outcomes(copies=failed("wrong", "first\nat [3]")))
    report.show(made)
    shown = capsys.readouterr().out
    assert "copies: wrong" in shown and "  at [3]" in shown
    assert shown.splitlines()[-1] == report.markdown_row(made)


def test_the_pages_have_the_table_of_the_row() -> None:
    page = (ROOT / "docs" / "gpu-check.md").read_text()
    assert report.header() in page and report.SECTION in page
    assert all(f"\n| {name} | " in page for name in report.CHECK_COLUMNS)
    for other in (ROOT / "docs").glob("compatibility.md"):
        text = other.read_text()
        assert report.SECTION not in text or report.header() in text
