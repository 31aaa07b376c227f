"""Write docs/states anew from the core's tables."""

from __future__ import annotations

from pathlib import Path

from antifreeze._core.inspection.state_diagrams import pages

FOLDER = Path(__file__).parent / "states"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text)
        print(f"wrote {FOLDER / name}")


if __name__ == "__main__":
    main()
