"""Every example of docs/trainers runs, where its trainer is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.test_examples_run import FENCE

from ..patience import PATIENCE_S
from .launching import PROGRAMS, VISION, environment, needs

pytestmark = needs()  # each says what it needs
PAGES = Path(__file__).parents[2] / "docs" / "trainers"
PACKAGES = {
    "accelerate.md": ["accelerate"],
    "ddp.md": [],
    "ignite.md": ["ignite"],
    "lightning.md": ["lightning"],
    "ray.md": ["ray"],
    "timm.md": ["timm", "torchvision"],
    "transformers.md": ["transformers", "accelerate"],
    "ultralytics.md": ["ultralytics", "torchvision"],
}


def test_each_page_has_an_example_and_is_in_the_table() -> None:
    assert {path.name for path in PAGES.glob("*.md")} == {"README.md", *PACKAGES}
    table = (PAGES / "README.md").read_text()
    for name in PACKAGES:
        assert f"]({name})" in table
        assert len(FENCE.findall((PAGES / name).read_text())) == 1


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=needs(*packages)) for name, packages in PACKAGES.items()]
)
def test_the_example_runs(name: str, tmp_path: Path) -> None:
    (code,) = FENCE.findall((PAGES / name).read_text())
    if "torchvision" in PACKAGES[name]:  # as the programs do it
        shutil.copy(PROGRAMS / "vision.py", tmp_path)
        code = "import vision\n" + code
    script = tmp_path / "example.py"
    script.write_text(code)
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        cwd=tmp_path,
        env=os.environ | environment(tmp_path) | VISION,
    )
    assert done.returncode == 0, done.stderr
