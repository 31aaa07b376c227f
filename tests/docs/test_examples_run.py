"""Every example in the README and in docs/ runs.

Not here: docs/trainers (tests/integrations); docs/rules, half of it sick on purpose (tests/check).
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ..forked_programs import run_script

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def examples() -> list[tuple[str, str]]:
    found = []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        if page.parent.name in ("rules", "trainers"):
            continue
        for number, code in enumerate(FENCE.findall(page.read_text()), 1):
            found.append((f"{page.relative_to(ROOT)}:{number}", code))
    return found


EXAMPLES = examples()


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 8


@pytest.mark.parametrize("code", [c for _, c in EXAMPLES], ids=[name for name, _ in EXAMPLES])
def test_example_runs_and_is_quiet(code: str, tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    script.write_text(code)
    done = run_script(script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    stderr = done.stderr
    if ".progress(" in code:  # which is asked for
        stderr, lines = re.subn(r"(?m)^epoch \d+: .*\n", "", stderr)
        assert lines
    said = [
        text
        for text in stderr.splitlines()
        if not text.startswith(("antifreeze: DataLoader worker", "antifreeze: samples of this"))
    ]
    assert said == []
    loses_a_worker = any(
        word in code for word in ("os.kill", "os._exit", "crashes=", "sample_timeout", "on_error")
    )
    if not loses_a_worker:  # else that is said
        assert stderr == ""
