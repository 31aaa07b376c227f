"""A crash in native code names the library, and the line that called it."""

from __future__ import annotations

import os
import sysconfig
import textwrap
from pathlib import Path

import pytest

from antifreeze._core.health.stall_detection import StackLine
from antifreeze._reporting.crash_library import LARGEST, crashed_in

from .programs import finish, program

SOURCE = """
import numpy as np
import cv2, os.path as paths
from PIL import Image as Picture
from . import mine
from .mine import other
def load(self, path):
    import h5py
    image = cv2.imdecode(path, 1)
    array = np.linalg.norm(
        image,
        paths.getsize(path),
    )
    torch = Picture.open(path)
    both = np.asarray(cv2.imread(path))
    own = other(path) + mine.thing(path) + self.reader(path)
    file = h5py.File(path)
    plain = "\\d"
"""
LINES = {text.split()[0]: number for number, text in enumerate(SOURCE.splitlines(), 1) if text}


def in_source(folder: Path, name: str, source: str = SOURCE) -> str:
    file = folder / "data.py"
    file.write_text(source)
    return crashed_in((StackLine(str(file), LINES[name], "load"),))


@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("image", "cv2"),
        ("array", "numpy"),
        ("image,", "numpy"),
        ("paths.getsize(path),", "os"),
        ("torch", "PIL"),
        ("both", "numpy or cv2"),
        ("file", "h5py"),
    ],
)
def test_a_line_names_the_library_that_it_calls(name: str, library: str, tmp_path: Path) -> None:
    line = SOURCE.splitlines()[LINES[name] - 1].strip()
    assert in_source(tmp_path, name) == f"{library} (called at data.py:{LINES[name]}: {line})"


@pytest.mark.parametrize("name", ["own", "plain"])
def test_a_line_that_calls_no_library_names_none(name: str, tmp_path: Path) -> None:
    assert in_source(tmp_path, name) == ""


def test_a_library_is_named_by_its_file_and_the_users_line_is_shown(tmp_path: Path) -> None:
    users = tmp_path / "data.py"
    users.write_text("import x\nx.decode(" + "a" * 200 + ")\n")
    stack = (
        StackLine("/opt/lib/python3.11/site-packages/cv2/__init__.py", 5, "imdecode"),
        StackLine(str(users), 2, "__getitem__"),
    )
    assert crashed_in(stack) == f"cv2 (called at data.py:2: x.decode({'a' * 68}...)"
    alone = StackLine("/opt/lib/python3.11/dist-packages/single.py", 5, "f")
    assert crashed_in((alone,)) == "single"
    standard = StackLine(f"{sysconfig.get_path('stdlib')}/ctypes/__init__.py", 519, "string_at")
    assert crashed_in((standard, StackLine("/nowhere/data.py", 7, "f"))) == (
        "ctypes (called at data.py:7)"
    )


def test_where_there_is_no_source_nothing_is_named(tmp_path: Path) -> None:
    assert crashed_in(()) == ""
    for file in ("<string>", "", "/nowhere/data.py", str(tmp_path), "a\0b"):
        assert crashed_in((StackLine(file, 1, "f"),)) == ""
    os.mkfifo(tmp_path / "pipe")  # to open it would wait for a writer
    assert crashed_in((StackLine(str(tmp_path / "pipe"), 1, "f"),)) == ""
    assert in_source(tmp_path, "image", "def broken(:\n" * 20) == ""
    assert in_source(tmp_path, "image", SOURCE + "#" * LARGEST) == ""


CRASHES = {
    "ctypes": "ctypes.string_at(0)",
    "numpy": "np.dot(beyond, beyond)",
}


@pytest.mark.parametrize("library", CRASHES)
def test_a_real_crash_names_its_library(library: str, tmp_path: Path) -> None:
    code = f"""
    import ctypes, resource
    import numpy as np
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    beyond = np.lib.stride_tricks.as_strided(np.zeros(1), (1 << 40,))  # of its memory

    class Crashes(Numbers):
        def __getitem__(self, index):
            if index == 5:
                {CRASHES[library]}
            return index

    if __name__ == "__main__":
        list(DataLoader(Crashes(16), batch_size=4, num_workers=1))
    """
    with program(tmp_path, textwrap.dedent(code)) as running:
        status, _, stderr = finish(running)
    assert status == 1
    (cause,) = [line for line in stderr.splitlines() if "likely cause" in line]
    assert f"native code crashed: {library} (called at program.py:" in cause
    assert cause.endswith(f": {CRASHES[library]})")
