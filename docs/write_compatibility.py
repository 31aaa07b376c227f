"""Write docs/compatibility.md anew from what `make compat` has kept of its runs."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.compat.results import PAGE, page, read


def main() -> None:
    PAGE.write_text(page(read()))
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
