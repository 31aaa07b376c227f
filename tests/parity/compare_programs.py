"""Run random programs with torch's loader and with ours, and print those that differ.

python -m tests.parity.compare_programs FIRST STOP STEP

In a process of its own: what torch's loader leaves behind in threads and processes is none of ours.
"""

from __future__ import annotations

import os
import random
import sys
import warnings
from typing import NoReturn

from torch.utils.data import DataLoader as TorchLoader

from antifreeze import DataLoader

from .drawing_programs import arguments_of, perform


def main() -> NoReturn:
    different = 0
    for number in range(*map(int, sys.argv[1:4])):
        chosen = arguments_of(random.Random(number))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = perform(TorchLoader, chosen)
            ours = perform(DataLoader, chosen, randomness="torch")
        # By their looks: not a number is not equal to itself.
        places = [at for at, pair in enumerate(zip(ours, theirs, strict=True)) if differ(*pair)]
        if places:
            different += 1
            at = places[0]
            print(f"program {number}, {chosen}: at {places}\n  {ours[at]!r}\n  {theirs[at]!r}")
    print(f"{different} differ", flush=True)
    # At once: threads of torch's loaders that are still held may be in its native code when Python
    # ends, which aborts the process now and then. How programs end is another test's business.
    os._exit(0)


def differ(one: object, other: object) -> bool:
    return repr(one) != repr(other)


if __name__ == "__main__":
    main()
