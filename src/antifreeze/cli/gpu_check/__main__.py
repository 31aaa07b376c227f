"""`python -m antifreeze.cli.gpu_check --device cpu`: the checks, for developers without a GPU.

Users have `antifreeze platform --gpu`.
"""

from __future__ import annotations

import argparse

from .command import run

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m antifreeze.cli.gpu_check")
    parser.add_argument("--device", help="a device of torch's, e.g. cpu (default: the accelerator)")
    parser.add_argument("--json", action="store_true", help="as JSON")
    given = parser.parse_args()
    raise SystemExit(run(as_json=given.json, device=given.device))
