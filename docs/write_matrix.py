"""Write docs/crash-matrix.md anew from the table that the tests hold against real processes."""

from __future__ import annotations

import sys
from pathlib import Path

PAGE = Path(__file__).parent / "crash-matrix.md"

sys.path.insert(0, str(PAGE.parents[1]))

from tests.rogues.matrix import page  # noqa: E402


def main() -> None:
    PAGE.write_text(page())
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
