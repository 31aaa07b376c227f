"""The process of one check: `python -m antifreeze.cli.gpu_check.one_check copies cuda answer.json`.

Its answer is a file of JSON: what libraries print on the way must not spoil it.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MACHINE = "machine"  # not a check: what there is to check
DDP = "DDP"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="antifreeze.cli.gpu_check.one_check")
    parser.add_argument("check")
    parser.add_argument("device", help="a type of torch's; empty: the accelerator there is")
    parser.add_argument("answer", type=Path)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--ranks", type=int, default=1)
    given = parser.parse_args(argv)
    # A check that hangs is asked for its stacks before it is ended.
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    answer = given.answer.with_suffix(".part")
    answer.write_text(json.dumps(_answer(given)))
    answer.replace(given.answer)
    return 0


def _answer(given: argparse.Namespace) -> dict[str, Any]:
    if given.check == MACHINE:
        from .machine import describe

        return describe(given.device or None).as_data()
    import torch

    from .checks import CHECKS, Setting

    setting = Setting(torch.device(given.device))
    if given.check == DDP:
        from .ddp_training import Rank, train

        return train(setting, Rank(given.rank, given.ranks, given.answer.parent / "meeting"))
    return CHECKS[given.check](setting).as_data()


if __name__ == "__main__":
    raise SystemExit(main())
