"""What differs between the versions of torch that we support: tests ask here, by name."""

from __future__ import annotations

import re

import torch

_NUMBERS = re.match(r"(\d+)\.(\d+)", torch.__version__)
assert _NUMBERS is not None
TORCH = (int(_NUMBERS[1]), int(_NUMBERS[2]))

# Before, a loader that pins warns of nothing where there is no accelerator: it asks for CUDA alone.
WARNS_WITHOUT_ACCELERATOR = TORCH >= (2, 7)
# Before, torch's loader pins for the device it is given, and fails where that is not there.
IGNORES_PIN_MEMORY_DEVICE = TORCH >= (2, 9)
# Before, the assertion about a prefetch factor of zero is one without a word.
NAMES_PREFETCH_FACTOR = TORCH >= (2, 10)
# Before, to assign to an attribute of it is a RuntimeError.
WORKER_INFO_IS_FROZEN_DATACLASS = TORCH >= (2, 12)
# Before, workers of spawn and forkserver leave without running the dataset's `__del__`.
WORKERS_RELEASE_DATASET = TORCH >= (2, 14)
