"""Import torchvision also where its compiled half cannot be loaded: a GPU build on a CPU's torch.

timm and ultralytics import it for transforms in Python. Its operators (nms, roi_align ...) are
declared by names alone, so that its import goes through; whoever called one would get an error.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from pathlib import Path

import torch

sys.path.append(os.environ["BESIDE"])  # where it may be

try:
    import torchvision
except RuntimeError as error:
    if "operator torchvision::" not in str(error):
        raise
    spec = importlib.util.find_spec("torchvision")
    assert spec is not None and spec.origin is not None
    text = (Path(spec.origin).parent / "_meta_registrations.py").read_text()
    names = re.findall(r'^@.*register_\w+\("(?:torchvision::)?(\w+)"', text, re.MULTILINE)
    library = torch.library.Library("torchvision", "DEF")
    for name in names:
        library.define(f"{name}() -> ()")
    import torchvision

__all__ = ["torchvision"]
