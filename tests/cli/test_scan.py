"""`antifreeze scan`, run as people run it; and what it writes, taken by the loader."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from antifreeze import DataLoader
from antifreeze.cli.scan import Scan, find, reserve, scan
from antifreeze.errors import ConfigurationError

from ..forked import run_forked
from ..patience import PATIENCE_S

PHOTOS = """
    import ctypes
    import time

    class Photos:
        def __len__(self):
            return 100
        def __getitem__(self, index):
            if index == 17:
                raise OSError("truncated")
            if index == 40:
                return None
            if index == 55:
                ctypes.string_at(0)
            if index == 70:
                time.sleep(1000)
            if 80 <= index < 96:
                raise ValueError("all of one batch")
            return index

    class Few:
        def __init__(self, bad=3, root="data"):
            self.bad, self.paths = bad, [f"data/{index}.jpg" for index in range(8)]
        def __len__(self):
            return 8
        def __getitem__(self, index):
            path = self.paths[index]
            if index == self.bad:
                raise OSError("truncated")
            return index

    class Broken:
        def __init__(self, length):
            self.length = length
        def __len__(self):
            return self.length
        def __getitem__(self, index):
            return open_it(f"nowhere/{index}.jpg")

    def open_it(path):
        return open(path)

    few = Few()
    by_name = {"few": few}
    photos = Photos()
    numbers = list(range(40))
    def stream():
        yield 1
"""
BAD = [17, 40, 55, 70, *range(80, 96)]


def _scan(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Scan as `_scan_as_people_do` does, in a fork of this process, where torch is there."""
    (folder / "photos.py").write_text(textwrap.dedent(PHOTOS))

    def command() -> int:
        os.chdir(folder)
        sys.path.insert(0, str(folder))
        from antifreeze.cli import main

        return main(["scan", *arguments])

    return run_forked(command)


def _scan_as_people_do(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "photos.py").write_text(textwrap.dedent(PHOTOS))
    return subprocess.run(
        [sys.executable, "-m", "antifreeze.cli", "scan", *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=PATIENCE_S,
    )


def test_bad_samples_are_shown_written_down_and_gone_without(tmp_path: Path) -> None:
    done = _scan_as_people_do(tmp_path, "photos:photos", "--timeout", "1", "--workers", "2")
    assert done.returncode == 1, done.stderr
    assert "100 of 100 samples were loaded: 20 are bad." in done.stdout
    for words in ("OSError: truncated", "sample 40 is None", "Segmentation fault", "hung for"):
        assert words in " ".join(done.stdout.split()), done.stdout
    assert "scanned" in done.stderr and "bad" in done.stderr
    written = json.loads((tmp_path / "quarantine.json").read_text())
    assert written["complete"] and [each["index"] for each in written["bad"]] == BAD
    assert {each["kind"] for each in written["bad"]} == {"exception", "crash", "hang"}

    class Healthy:
        def __len__(self) -> int:
            return 100

        def __getitem__(self, index: int) -> int:
            assert index not in BAD
            return index

    for workers in (0, 2):
        arguments: dict[str, Any] = {"num_workers": workers, "batch_size": 16}
        arguments["quarantine"] = tmp_path / "quarantine.json"
        kept = DataLoader(Healthy(), on_error="skip", **arguments)
        seen = [int(index) for batch in kept for index in batch]
        assert seen == [index for index in range(100) if index not in BAD]
        replaced = DataLoader(Healthy(), on_error="replace", **arguments)
        assert sum(len(batch) for batch in replaced) == 100
        assert {fault.kind for fault in replaced.faults} == {"quarantined"}


def test_a_healthy_dataset_from_a_file_is_said_to_be(tmp_path: Path) -> None:
    done = _scan_as_people_do(
        tmp_path, str(tmp_path / "photos.py:numbers"), "--json", "-o", "found.json"
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads((tmp_path / "found.json").read_text())
    assert json.loads(done.stdout)["bad"] == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("photos", "package.module:name"),
        ("photos:nothing", "no attribute 'nothing'"),
        ("nowhere:photos", "No module named 'nowhere'"),
        ("nowhere.py:photos", "there is no nowhere.py"),
        ("photos:stream", "no samples to be asked for by index"),
    ],
)
def test_what_cannot_be_scanned_is_said_in_one_line(name: str, words: str, tmp_path: Path) -> None:
    done = _scan(tmp_path, name)
    assert done.returncode == 2
    assert words in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "quarantine.json").exists()


def test_a_file_that_is_there_is_never_overwritten(tmp_path: Path) -> None:
    kept = tmp_path / "quarantine.json"
    kept.write_text("mine")
    for name in ("quarantine-2.json", "quarantine-3.json"):
        done = _scan(tmp_path, "photos:few", "--workers", "1")
        assert done.returncode == 1 and kept.read_text() == "mine"
        said = " ".join(done.stdout.split())
        assert f"quarantine.json was there already and is kept; this scan is in {name}." in said
        assert f'quarantine="{name}"' in said
        assert [each["index"] for each in json.loads((tmp_path / name).read_text())["bad"]] == [3]


def test_an_empty_file_and_a_device_are_written_to(tmp_path: Path) -> None:
    (tmp_path / "empty.json").touch()
    assert reserve(tmp_path / "empty.json") == tmp_path / "empty.json"
    assert reserve(Path("/dev/null")) == Path("/dev/null")
    with pytest.raises(IsADirectoryError):
        reserve(tmp_path)


@pytest.mark.parametrize(
    "call",
    [
        'photos.py:Few(bad=3, root="s3://x:1")',
        "photos:Few(3)",
        "photos:by_name['few']",
        "photos:few",
    ],
)
def test_a_call_is_scanned_and_files_are_named(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "photos.py").write_text(textwrap.dedent(PHOTOS))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "photos", raising=False)
    result = scan(find(call), call, 1, 10.0)
    monkeypatch.delitem(sys.modules, "photos", raising=False)
    assert result.complete and result.scanned == 8
    assert [(each["index"], each["file"]) for each in result.bad] == [(3, "data/3.jpg")]


@pytest.mark.parametrize("what", ["photos:3 +", "photos:few + few", "photos:lambda: few"])
def test_what_is_no_call_is_refused_before_anything_runs(what: str) -> None:
    with pytest.raises(ValueError, match=r"is (not an expression|neither a name nor a call)"):
        find(what)


@pytest.mark.parametrize("name", ["photos:Broken(100)", "photos:Broken(100_000)"])
def test_where_all_samples_fail_it_is_not_the_samples(name: str, tmp_path: Path) -> None:
    done = _scan(tmp_path, name, "--workers", "2")
    assert done.returncode == 2, done.stderr
    said = " ".join(done.stdout.split())
    assert "fail in the same way, the first with FileNotFoundError: " in said
    assert "(photos.py:" in said and "in open_it)" in said
    assert "No quarantine was written." in said and "quarantine=" not in said
    assert not (tmp_path / "quarantine.json").exists()


def test_nearly_all_is_nine_of_ten() -> None:
    def result(bad: int, scanned: int) -> Scan:
        return Scan("name", 100, scanned, [{"index": each} for each in range(bad)], complete=True)

    assert result(90, 100).is_hopeless and result(1, 1).is_hopeless
    assert not result(89, 100).is_hopeless and not result(0, 0).is_hopeless


def test_a_quarantine_is_checked_where_it_is_given(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match='on_error="replace" or "skip"'):
        DataLoader([1, 2], quarantine=[0])
    with pytest.raises(ConfigurationError, match="nowhere"):
        DataLoader([1, 2], quarantine="nowhere.json", on_error="skip")
    (tmp_path / "notes.json").write_text("[1, 2]")
    with pytest.raises(ValueError, match="is no file of `antifreeze scan`"):
        DataLoader([1, 2], quarantine=tmp_path / "notes.json", on_error="skip")
    with pytest.raises(TypeError, match="quarantine=7"):
        DataLoader([1, 2], quarantine=7, on_error="skip")


def test_where_all_are_in_quarantine_nothing_takes_their_place() -> None:
    loader = DataLoader([1, 2], quarantine=[0, 1], on_error="replace")
    with pytest.raises(RuntimeError, match="nothing is left to take the place of sample 0"):
        list(loader)
