"""How long `antifreeze check` takes: seconds for 100,000 lines, of packages that are installed.

    python benchmarks/check_speed.py [--jobs N] [PATH ...]

The bar: under 15 s for 100,000 lines. Without paths: torch, and what else is installed of a list.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from pathlib import Path

from antifreeze.doctor.check.check_result import Result
from antifreeze.doctor.check.checker import check
from antifreeze.doctor.check.files.file_discovery import walk
from antifreeze.doctor.check.settings import Settings
from antifreeze.doctor.rules import all_rules

PACKAGES = ("transformers", "lightning", "accelerate", "monai", "timm", "ultralytics", "torch")
BAR_S = 15.0  # for 100,000 lines


def places(words: list[str]) -> list[Path]:
    """Give the folders to check: those that were named, or installed packages."""
    if words:
        return [Path(each) for each in words]
    found = (importlib.util.find_spec(each) for each in PACKAGES)
    return [Path(spec.origin).parent for spec in found if spec is not None and spec.origin]


def measure(folder: Path, settings: Settings) -> tuple[Result, float]:
    files = walk([folder], settings).files
    start = time.perf_counter()
    result = check(files, settings)
    return result, time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("paths", nargs="*")
    parser.add_argument("--jobs", type=int, default=1, help="processes; 0: one a core (default: 1)")
    arguments = parser.parse_args()
    settings = Settings(jobs=arguments.jobs)
    print(f"{len(all_rules())} rules, jobs {arguments.jobs or 'one a core'}, bar {BAR_S:g} s")
    print(f"{'package':20} {'files':>7} {'lines':>10} {'seconds':>8} {'s/100k':>7} {'found':>6}")
    for folder in places(arguments.paths):
        result, seconds = measure(folder, settings)
        each = seconds / max(result.lines, 1) * 100_000
        print(
            f"{folder.name:20} {result.files:7,} {result.lines:10,} {seconds:8.1f} {each:7.2f}"
            f" {len(result.found):6}{'  OVER THE BAR' if each > BAR_S else ''}"
        )
        for failure in result.failures:
            print(f"    {failure}")


if __name__ == "__main__":
    main()
