"""Run every scenario script of this folder, each in a process of its own, and print one table.

A new script named `sNN_what_it_is_about.py` joins by being there; a part of a scenario has a
letter: `sNNa_...`. Exit code 0: all scenarios went as they should.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from bounded import heed_sigterm, run_bounded
from rich.console import Console
from rich.table import Table

# A scenario takes under a minute; three rounds with a loader that freezes each time take longer.
SCRIPT_BOUND_S = 300.0
STYLES = {"finished": "green", "wrong data": "red", "frozen": "red", "failed": "red"}


def find_scripts(folder: Path) -> list[Path]:
    """Return the scenario scripts in the order of their numbers."""
    return sorted(folder.glob("s[0-9][0-9]*_*.py"))


def number_of(script: Path) -> int | str:
    """Return the number in a script's name, with its letter if it has one: 1, "13a"."""
    number = script.stem.partition("_")[0].removeprefix("s")
    return int(number) if number.isdecimal() else number


def run_script(script: Path, quick: bool, bound_s: float) -> dict[str, Any]:
    """Run one script; a script that gives no result becomes a failed one."""
    command = [sys.executable, str(script), "--json"] + (["--quick"] if quick else [])
    run = run_bounded(command, bound_s)
    try:
        return {"script": script.name, "seconds": run.seconds, **json.loads(run.stdout)}
    except ValueError:
        return {
            "script": script.name,
            "seconds": run.seconds,
            "number": number_of(script),
            "title": script.stem.partition("_")[2].replace("_", " "),
            "torch": "-",
            "antifreeze": "-",
            "wrong_samples": {},
            "rates": {},
            "findings": [f"no result, the script itself {run.ended}: {run.last_words}"],
            "ok": False,
        }


def draw(results: list[dict[str, Any]]) -> Table:
    """Draw one row a scenario; the rate is that of its first pass."""
    table = Table(
        caption="/s: samples a second, median, first pass of each scenario",
        caption_justify="left",
    )
    table.add_column("#", justify="right")
    table.add_column("scenario")
    for loader in ("torch", "antifreeze"):
        table.add_column(loader, no_wrap=True)
        table.add_column("/s", justify="right", no_wrap=True)
    table.add_column("ratio", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for result in results:
        cells = []
        rates: dict[str, Any] = next(iter(result["rates"].values()), {})
        medians = [rates.get(loader, {}).get("median", 0) for loader in ("torch", "antifreeze")]
        for loader, median in zip(("torch", "antifreeze"), medians, strict=True):
            end = result[loader]
            cells += [f"[{STYLES.get(end, 'dim')}]{end}", f"{median:,.0f}" if median else "-"]
        ratio = f"{medians[1] / medians[0]:.2f}x" if all(medians) else "-"
        mark = "[green]ok" if result["ok"] else "[red]not ok"
        table.add_row(str(result["number"]), result["title"], *cells, ratio, mark)
    return table


def main() -> int:
    """Run the scripts one after the other and show what they came to."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="all results as JSON on stdout")
    parser.add_argument("--quick", action="store_true", help="one round on little data each")
    parser.add_argument("--list", action="store_true", help="only name the scripts")
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent)
    parser.add_argument("--bound-s", type=float, default=SCRIPT_BOUND_S, help="for each script")
    options = parser.parse_args()
    scripts = find_scripts(options.folder)
    if options.list:
        print("\n".join(script.name for script in scripts))
        return 0
    heed_sigterm()
    console = Console(stderr=options.json, highlight=False)
    results = []
    for place, script in enumerate(scripts, 1):
        console.print(f"{place} of {len(scripts)}: {script.name} ...", end=" ")
        result = run_script(script, options.quick, options.bound_s)
        results.append(result)
        mark = "[green]ok" if result["ok"] else "[red]not ok"
        console.print(f"{mark}[/], {result['seconds']:.0f} s")
    if options.json:
        print(json.dumps(results, indent=2))
    else:
        console.print(draw(results))
        for result in results:
            console.print(f"[bold]{result['number']}. {result['title']}")
            for finding in result["findings"]:
                console.print(f"   {finding}", markup=False)
    return 0 if results and all(result["ok"] for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
