"""Run torch's public DataLoader test-suite with our class in the place of theirs.

    python tests/parity/exam.py path/to/test_dataloader.py [pytest arguments]

The suite is not part of this repository. It is read, our class is put where it imports the loader,
and the result is run from a temporary folder.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

OURS = "from antifreeze import DataLoader"
THEIRS = re.compile(r"from torchdata\.stateful_dataloader import StatefulDataLoader as DataLoader")


def put_ours_in(suite: str) -> tuple[str, int]:
    """Replace every import of the loader under test, those inside embedded scripts included."""
    text, count = THEIRS.subn(OURS, suite)
    if not count:  # torch's own copy takes the loader from torch.utils.data
        text, count = re.subn(r"^( *)DataLoader,\n", r"", suite, count=1, flags=re.MULTILINE)
        text = text.replace(
            "\nfrom torch.utils.data import (", f"\n{OURS}\nfrom torch.utils.data import (", 1
        )
        text = text.replace(
            "from torch.utils.data import DataLoader, IterableDataset",
            f"{OURS}\nfrom torch.utils.data import IterableDataset",
        )
    return text, count


def main() -> int:
    if len(sys.argv) < 2:
        print(__doc__)
        return 2
    suite = Path(sys.argv[1])
    text, count = put_ours_in(suite.read_text())
    if not count:
        print(f"{suite} does not import a DataLoader in a way this script knows")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "test_exam.py"
        copy.write_text(text)
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-c",
            "/dev/null",
        ]
        return subprocess.call([*command, *sys.argv[2:], str(copy)], cwd=folder)


if __name__ == "__main__":
    raise SystemExit(main())
