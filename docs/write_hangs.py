"""Write docs/hangs anew from the pages beside the causes."""

from __future__ import annotations

from pathlib import Path

from antifreeze.doctor.attach.pages import pages

FOLDER = Path(__file__).parent / "hangs"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    wanted = pages()
    for path in FOLDER.glob("*.md"):
        if path.name not in wanted:
            path.unlink()
    for name, text in wanted.items():
        (FOLDER / name).write_text(text)
    print(f"wrote {len(wanted)} pages into {FOLDER}")


if __name__ == "__main__":
    main()
