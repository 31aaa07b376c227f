"""Where the examples are, and their modules made importable as the scripts themselves see them."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT / "examples" / "scenarios"), str(ROOT / "examples" / "demo")]
sys.path.append(str(ROOT / "examples" / "what_happens"))
