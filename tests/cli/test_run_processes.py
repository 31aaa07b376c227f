"""`antifreeze run` with scripts whose loops are in processes that they start."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from antifreeze._core.limits import LIMITS
from antifreeze._reporting import process_summaries
from antifreeze._reporting.process_summaries import Place, State, read
from antifreeze.cli import run_report

from ..patience import PATIENCE_S
from .running import NO_LOADER, OURS, start, write

# A loader of a process: loops over it once, with a fault that is replaced.
LOOP = """
    import multiprocessing, os, signal, sys, time
    from torch.utils.data import DataLoader
    class Photos:
        def __len__(self):
            return 4
        def __getitem__(self, index):
            if index == 2:
                raise OSError("truncated")
            return index
    def loop():
        for batch in DataLoader(Photos(), batch_size=2):
            time.sleep(0.01)
"""
FAULT = "  exception of sample 2, replaced: OSError: truncated at train.py:9, in __getitem__"


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files, in which no run leaves anything."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    assert list(folder.glob("antifreeze*")) == []


def told(folder: Path, code: str, *, exit_code: int = 0) -> list[str]:
    """Run a script; return what it says on stderr, with `PID` for numbers of processes."""
    write(folder, LOOP + code)
    done = start(folder, *OURS, "--on-error", "replace", "train.py")
    said = done.stderr.decode()
    assert done.returncode == exit_code and done.stdout == b"", said
    return re.sub(r"\(pid \d+\)", "(pid PID)", said).splitlines()


def loops_of(lines: list[str]) -> list[str]:
    """Return who has told of a loop, in alphabetical order."""
    found = [re.match(r"(.*): DataLoader \(train.py:\d+\): the loop", line) for line in lines]
    return sorted(each[1] for each in found if each)


def test_ranks_that_mp_spawn_starts_are_told_of_by_rank_and_name(tmp_path: Path) -> None:
    code = """
    import torch.distributed as dist, torch.multiprocessing as mp
    def train(rank):
        dist.init_process_group("gloo", f"file://{os.getcwd()}/meet", rank=rank, world_size=2)
        loop()
        dist.barrier()
        dist.destroy_process_group()
    if __name__ == "__main__":
        mp.spawn(train, nprocs=2)
    """
    lines = told(tmp_path, code)
    assert loops_of(lines) == [
        "antifreeze, rank 0, SpawnProcess-1 (pid PID)",
        "antifreeze, rank 1, SpawnProcess-2 (pid PID)",
    ], lines
    assert lines.count(FAULT) == 2, lines
    advice = [line for line in lines if line.startswith("  to try: ")]
    assert len(advice) == len(set(advice)), lines
    assert not [line for line in lines if not line.startswith(("antifreeze, rank", "  "))], lines


def test_processes_of_every_start_method_are_told_of_and_those_that_they_start(
    tmp_path: Path,
) -> None:
    code = """
    def run(method, target, *arguments):
        process = multiprocessing.get_context(method).Process(target=target, args=arguments)
        process.start()
        process.join()
    if __name__ == "__main__":
        loop()
        run("fork", run, "fork", loop)
        run("spawn", loop)
        run("forkserver", loop)
        run("forkserver", run, "fork", loop)
        run("fork", time.sleep, 0)
        if os.fork() == 0:
            loop()
            sys.exit()
        os.wait()
    """
    lines = told(tmp_path, code)
    assert loops_of(lines) == [
        "antifreeze",
        "antifreeze, ForkProcess-1:1 (pid PID)",
        "antifreeze, ForkProcess-4:1 (pid PID)",
        "antifreeze, ForkServerProcess-3 (pid PID)",
        "antifreeze, SpawnProcess-2 (pid PID)",
        "antifreeze, a forked process (pid PID)",
    ], lines
    assert lines.count(FAULT) == 6, lines


def test_a_forked_process_tells_of_its_own_loops_alone(tmp_path: Path) -> None:
    code = """
    from antifreeze.stats import entries
    loader = DataLoader(range(8), batch_size=2)
    def loop_again():
        list(loader)
        assert (loader.stats()["epochs"], loader.stats()["batches"]) == (1, 4)
        assert [each.accounts.epochs for each in entries()] == [1]
    list(loader)
    list(loader)
    process = multiprocessing.get_context("fork").Process(target=loop_again)
    process.start()
    process.join()
    sys.exit(process.exitcode)
    """
    lines = told(tmp_path, code)
    assert loops_of(lines) == ["antifreeze", "antifreeze, ForkProcess-1 (pid PID)"], lines


GONE = "ended without a report of its own (it was killed, or left by os._exit)."


def test_processes_that_cannot_report_at_their_end_are_counted_with_what_they_left(
    tmp_path: Path,
) -> None:
    """A rank that mp.spawn terminates because another one failed is one of them."""
    code = """
    def die(how, after_s):
        loop()
        time.sleep(after_s)
        if how == 0:
            os._exit(0)
        os.kill(os.getpid(), how)
        time.sleep(100)
    for how, after_s in ((signal.SIGKILL, 0), (signal.SIGTERM, 2.5), (0, 0)):
        process = multiprocessing.get_context("fork").Process(target=die, args=(how, after_s))
        process.start()
        process.join()
    raise ValueError("a rank is gone")
    """
    lines = told(tmp_path, code, exit_code=1)
    mine = [line for line in lines if line.startswith("antifreeze")]
    said = [line for line in mine if GONE in line]
    assert [line.split(":")[0] for line in sorted(said)] == [
        f"antifreeze, ForkProcess-{number} (pid PID)" for number in (1, 2, 3)
    ], lines
    # After its loop it lived long enough to be noted; the others may have, or not.
    assert "antifreeze, ForkProcess-2 (pid PID)" in loops_of(lines), lines
    assert "ValueError: a rank is gone" in lines, lines
    assert NO_LOADER.strip() not in lines


def test_of_a_process_that_fails_at_once_only_the_fault_is_told(tmp_path: Path) -> None:
    write(
        tmp_path,
        LOOP
        + """
    process = multiprocessing.get_context("fork").Process(target=loop)
    process.start()
    process.join()
    """,
    )
    said = start(tmp_path, *OURS, "train.py").stderr.decode().splitlines()
    fault = "exception of sample 2, raised: OSError: truncated at train.py:9, in __getitem__"
    assert said[-1].endswith(f"): DataLoader (train.py:12): {fault}"), said
    assert "OSError: truncated" in said and not [each for each in said if "waited for" in each]


def test_workers_tell_nothing_ours_or_torchs(tmp_path: Path) -> None:
    code = """
    import torch.utils.data as data
    class Nested(Photos):
        def __getitem__(self, index):
            loop()
            return index
    class Own(DataLoader):
        def _get_iterator(self):
            return data.dataloader._MultiProcessingDataLoaderIter(self)
    for kind in (DataLoader, Own):
        list(kind(Nested(), num_workers=1))
    """
    lines = told(tmp_path, code)
    assert loops_of(lines) == ["antifreeze"], lines


def test_processes_that_outlive_the_run_clean_up_after_one_that_was_killed(
    tmp_path: Path, temporary: Path
) -> None:
    write(
        tmp_path,
        LOOP
        + """
    parent = os.getpid()
    def outlive():
        loop()
        print("looped", flush=True)
        while os.getppid() == parent:
            time.sleep(0.01)
    multiprocessing.get_context("fork").Process(target=outlive).start()
    time.sleep(1000)
    """,
    )
    with subprocess.Popen(
        [*OURS, "--on-error", "replace", "train.py"], stdout=subprocess.PIPE, cwd=tmp_path
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"looped\n"
        assert len(list(temporary.glob("antifreeze-run-*/*.json"))) == 1
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == b""  # until all who could write are gone
    assert process.returncode == -signal.SIGTERM


def test_on_a_signal_processes_are_told_of_that_still_run(tmp_path: Path) -> None:
    write(
        tmp_path,
        LOOP
        + """
    def stay():
        loop()
        print("looped", flush=True)
        while not os.path.exists("go"):
            time.sleep(0.05)
    child = multiprocessing.get_context("fork").Process(target=stay)
    child.start()
    child.join(1000)  # as mp.spawn waits; without a time, no signal handler of Python's is run
    """,
    )
    with subprocess.Popen(
        [*OURS, "--on-error", "replace", "train.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "looped\n"
        process.send_signal(signal.SIGUSR1)
        while "ForkProcess-1" not in (line := process.stderr.readline()):
            assert line, "it has told nothing of the process"
        assert "has not ended." in line
        (tmp_path / "go").touch()
        rest = process.communicate(timeout=PATIENCE_S)[1]
    assert "ForkProcess-1" in rest and "has not ended" not in rest


# ---- what is read is text of others --------------------------------------------------------------


def summary(**changes: Any) -> dict[str, Any]:
    loader = {
        "name": "DataLoader (train.py:3)",
        "seconds": 2.0,
        "sentence": "the loop's own work takes 99 % of the time",
        "evidence": [],
        "advice": ["num_workers=2"],
        "faults_seen": 0,
        "faults": [],
    }
    usual = {"name": "Worker", "pid": os.getpid(), "rank": None, "state": "ended"}
    return {**usual, "loaders": [loader], "more_loaders": 0, **changes}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    folder = tmp_path / "left"
    folder.mkdir(mode=0o700)
    place = Place(str(folder), os.getpid())
    monkeypatch.setattr(run_report, "_place", place)
    return place


def test_files_that_are_not_as_we_write_them_are_passed_over(place: Place) -> None:
    wrong: list[Any] = [7, [], None, summary(pid="1"), summary(name=7), summary(state="?")]
    wrong += [summary(loaders={}), summary(loaders=[7]), summary(pid=-1), summary(rank=True)]
    wrong += [summary(loaders=[{**summary()["loaders"][0], "advice": [7]}])]
    texts = [*map(json.dumps, wrong), "", "{", "[" * 100_000, "\x00", json.dumps(summary()) + "x"]
    for number, text in enumerate(texts):
        Path(place.folder, f"{number}.json").write_text(text)
    os.mkfifo(Path(place.folder, "pipe.json"))
    target = Path(place.folder, "target")
    target.write_text(json.dumps(summary()))
    Path(place.folder, "link.json").symlink_to(target)
    Path(place.folder, "long.json").write_text(json.dumps(summary(name="x" * 1_000_000)))
    assert read(place) == []


def test_a_folder_that_others_can_write_to_is_not_read(place: Place) -> None:
    Path(place.folder, "1.json").write_text(json.dumps(summary()))
    assert [each.state for each in read(place)] == [State.ENDED]
    os.chmod(place.folder, 0o770)
    assert read(place) == []
    assert not process_summaries._make_folder(place.folder)


def test_names_and_sentences_are_cut_and_mean_nothing_to_a_terminal(place: Place) -> None:
    loader = {**summary()["loaders"][0], "sentence": "\x1b[2J\n::error::" + "x" * 5000}
    many = summary(name="N" * 5000, loaders=[loader] * 1000, more_loaders=1 << 30)
    Path(place.folder, "1.json").write_text(json.dumps(many)[: LIMITS.records.summary_bytes])
    many["loaders"] = [loader] * 20
    Path(place.folder, "2.json").write_text(json.dumps(many))
    text = run_report.text()
    lines = text.splitlines()
    assert "\x1b" not in text and len(lines) == run_report.LOADERS_EACH + 2, text
    assert max(map(len, lines)) < 900
    assert lines[-1].endswith(f"... and {(1 << 30) + 16:,} more loaders")


def test_of_many_processes_those_that_looped_longest_are_told_of(place: Place) -> None:
    for number in range(40):
        loader = {**summary()["loaders"][0], "seconds": float(number)}
        gone = number < 5  # a number that no process has
        state, pid = ("looping", 1 << 30) if gone else ("ended", 1000 + number)
        content = summary(pid=pid, state=state, name=f"P{number}", loaders=[loader])
        Path(place.folder, f"{number}.json").write_text(json.dumps(content))
    lines = run_report.text().splitlines()
    assert lines[0].startswith("antifreeze, P39 (pid 1039): DataLoader (train.py:3): the loop's")
    assert lines[-1] == (
        "antifreeze: ... and 24 more processes that looped over DataLoaders; 5 of them ended"
        " without a report of their own"
    )
    assert lines.count("  to try: num_workers=2") == 1


def test_no_more_processes_write_than_are_read(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = replace(LIMITS.records, summary_processes=1)
    monkeypatch.setattr(
        process_summaries.multiprocessing_children, "call_at_end", lambda function: None
    )
    parent = Place(place.folder, os.getppid())
    for _ in range(3):
        process_summaries._Writer(parent, one).begin()
    assert len(os.listdir(place.folder)) == 1


def test_nobody_writes_for_a_run_that_is_over(place: Place) -> None:
    over = subprocess.Popen([sys.executable, "-c", ""])
    over.wait()
    process_summaries._Writer(Place(place.folder, over.pid)).begin()
    assert os.listdir(place.folder) == []
