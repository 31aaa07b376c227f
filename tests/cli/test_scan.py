"""`antifreeze scan`, run as people run it; and what it writes, taken by the loader."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from antifreeze import DataLoader
from antifreeze.errors import ConfigurationError

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

    photos = Photos()
    numbers = list(range(40))
    def stream():
        yield 1
"""
BAD = [17, 40, 55, 70, *range(80, 96)]


def _scan(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "photos.py").write_text(textwrap.dedent(PHOTOS))
    return subprocess.run(
        [sys.executable, "-m", "antifreeze.cli", "scan", *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=PATIENCE_S,
    )


def test_bad_samples_are_shown_written_down_and_gone_without(tmp_path: Path) -> None:
    done = _scan(tmp_path, "photos:photos", "--timeout", "1", "--workers", "2")
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
        kept = DataLoader(Healthy(), on_error="skip", **arguments)  # type: ignore[arg-type]
        seen = [int(index) for batch in kept for index in batch]
        assert seen == [index for index in range(100) if index not in BAD]
        replaced = DataLoader(Healthy(), on_error="replace", **arguments)  # type: ignore[arg-type]
        assert sum(len(batch) for batch in replaced) == 100
        assert {fault.kind for fault in replaced.faults} == {"quarantined"}


def test_a_healthy_dataset_from_a_file_is_said_to_be(tmp_path: Path) -> None:
    done = _scan(tmp_path, str(tmp_path / "photos.py:numbers"), "--json", "-o", "found.json")
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


def test_a_quarantine_is_checked_where_it_is_given(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match='on_error="replace" or "skip"'):
        DataLoader([1, 2], quarantine=[0])
    with pytest.raises(ConfigurationError, match="nowhere"):
        DataLoader([1, 2], quarantine="nowhere.json", on_error="skip")
    (tmp_path / "notes.json").write_text("[1, 2]")
    with pytest.raises(ValueError, match="is no file of `antifreeze scan`"):
        DataLoader([1, 2], quarantine=tmp_path / "notes.json", on_error="skip")
    with pytest.raises(TypeError, match="quarantine=7"):
        DataLoader([1, 2], quarantine=7, on_error="skip")  # type: ignore[arg-type]


def test_where_all_are_in_quarantine_nothing_takes_their_place() -> None:
    loader = DataLoader([1, 2], quarantine=[0, 1], on_error="replace")
    with pytest.raises(RuntimeError, match="nothing is left to take the place of sample 0"):
        list(loader)
