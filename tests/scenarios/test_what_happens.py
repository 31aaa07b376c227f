"""The table "what happens when" says what its programs show, with torch's loader and with ours."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from typing import Any

import psutil
import pytest
import rows
from bounded import run_bounded
from what import LOADERS, NOT_HERE, ROOT, in_markdown, pages, with_table

WHAT = ROOT / "examples" / "what_happens" / "what.py"
BOUND_S = 250.0  # 40 s on an idle machine
NAMES = [row.name for row in rows.ROWS]

_seen: dict[tuple[str, str], dict[str, Any]] = {}


def seen(name: str, loader: str) -> dict[str, Any]:
    """Run all programs once a session, however many tests look at them."""
    if not _seen:
        run = run_bounded([sys.executable, str(WHAT), "--json"], BOUND_S)
        assert run.stdout, run.stderr
        _seen.update({(one["name"], one["loader"]): one for one in json.loads(run.stdout)})
    return _seen[name, loader]


@pytest.mark.slow
@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("name", NAMES)
def test_a_program_shows_what_its_row_says(name: str, loader: str) -> None:
    sight = seen(name, loader)
    if sight["saw"] == NOT_HERE:
        pytest.skip("no mount namespaces here: neither root nor user namespaces")
    assert sight["as_told"], sight


@pytest.mark.slow
def test_a_sample_that_never_returns_is_told_in_seconds() -> None:
    saw = seen("sample_never_returns", "antifreeze")["saw"]
    (seconds,) = re.findall(r"^after (\d+) s said", saw)
    assert int(seconds) <= 50  # ten are promised


@pytest.mark.slow
def test_workers_are_faster_than_torchs_for_tiny_batches_and_torchs_slower_than_none() -> None:
    def seconds(loader: str) -> tuple[float, float]:
        found = re.findall(r"([\d.]+) s with", seen("tiny_batches", loader)["saw"])
        with_two, without = (float(one) for one in found)
        return with_two, without

    theirs, theirs_alone = seconds("torch")
    ours, _ = seconds("antifreeze")
    assert theirs > theirs_alone  # twenty times, as a rule
    assert theirs > 1.5 * ours  # ten times, as a rule


def test_the_pages_have_the_table_of_the_rows() -> None:
    for path, text in pages().items():
        assert path.read_text() == text, "run `make docs`"


def test_the_readme_keeps_to_a_dozen_rows_and_leads_to_the_others() -> None:
    readme = (ROOT / "README.md").read_text()
    rows_there = [line for line in readme.splitlines() if line.startswith("| ")]
    assert 10 <= len(rows_there) - 1 <= 12
    assert "docs/what-happens.md" in readme


def test_every_program_has_its_row_and_says_what_it_does() -> None:
    source = (ROOT / "examples" / "what_happens" / "programs.py").read_text()
    written = re.findall(r"^def (\w+)\(loader: Loader\) -> str:", source, re.MULTILINE)
    assert sorted(written) == sorted(NAMES)
    assert all(row.program.__doc__ for row in rows.ROWS)


def test_a_table_is_exchanged_and_what_is_around_it_stays() -> None:
    table = in_markdown(rows.ROWS[:1], in_docs=True)
    page = f"before\n\n{in_markdown(rows.ROWS, in_docs=True)}\nafter\n"
    assert with_table(page, table) == f"before\n\n{table}\nafter\n"


def test_links_of_the_readme_lead_from_docs_to_the_same_pages() -> None:
    assert "](docs/" in in_markdown(rows.ROWS, in_docs=False)
    assert "](docs/" not in in_markdown(rows.ROWS, in_docs=True)


@pytest.mark.slow
def test_a_runner_that_is_stopped_leaves_no_program_behind() -> None:
    command = [sys.executable, str(WHAT), "sample_never_returns"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as runner:
        children = wait_for_workers(runner.pid)
        runner.send_signal(signal.SIGTERM)
        runner.wait(60)
    gone, alive = psutil.wait_procs(children, timeout=30)
    assert not [one for one in alive if one.status() != psutil.STATUS_ZOMBIE]
    assert len(gone) + len(alive) == len(children)
    assert runner.returncode == 128 + signal.SIGTERM


def wait_for_workers(pid: int) -> list[psutil.Process]:
    """Poll, within a bound, until both programs have workers."""
    runner = psutil.Process(pid)
    for _ in range(600):
        children = runner.children(recursive=True)
        if len(children) >= 6:  # two programs and their workers
            return children
        time.sleep(0.1)
    pytest.fail("no workers appeared")
