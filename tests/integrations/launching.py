"""Run a program that trains, under a bound; say how it ended, what it saw and what it left."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import antifreeze

from ..members import end, new_mark, settled

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
BOUND_S = 270.0  # these take ten to thirty seconds, most of it imports; five times that if busy
TOLD = re.compile("is killed by signal: Killed.* The worker is replaced")

# How a program comes to our loader. Late: it installs when its trainer is imported already.
OWN, INSTALL, LATE, RUN = "own", "install", "late", "run"
TORCH = "torch"  # it does not

# Where `make test-all` puts torchvision: beside the others, which would import it if they saw it.
_BESIDE = Path(sys.prefix) / "vision"
VISION = {"BESIDE": str(_BESIDE)}


@dataclass(frozen=True, slots=True)
class Ending:
    """How a program ended."""

    code: int | None  # none: the bound passed
    out: str
    err: str
    seconds: float
    left: tuple[str, ...]
    folder: Path

    def __str__(self) -> str:
        return (
            f"code {self.code} after {self.seconds:.1f} s, left behind: {self.left}\n"
            f"--- stdout\n{self.out[-2000:]}\n--- stderr\n{self.err[-6000:]}"
        )

    @property
    def ranks(self) -> list[dict[str, Any]]:
        """Give what each rank said, the first one first."""
        return [json.loads(path.read_text()) for path in sorted(self.folder.glob("rank*.json"))]

    @property
    def killed(self) -> list[str]:
        """Give which workers were killed: one of a dataset in a rank."""
        return sorted(path.name.removeprefix("killed-") for path in self.folder.glob("killed-*"))

    def loads(self, name: str = "rows") -> list[tuple[int, int, str]]:
        """Give each load of a row: its number, the process, and whose code loaded it."""
        text = (self.folder / f"loads-{name}.txt").read_text()
        lines = [line.split() for line in text.splitlines()]
        return [(int(index), int(pid), who) for index, pid, who in lines]

    def went_well(self, told: bool = True) -> None:
        """Fail unless it ended by itself, with our loader alone, said so, and left nothing."""
        assert self.code == 0, str(self)
        assert self.left == (), str(self)
        if told:
            assert len(TOLD.findall(self.err)) == len(self.killed), str(self)
        for path in self.folder.glob("loads-*.txt"):
            name = path.stem.removeprefix("loads-")
            assert {who for _, _, who in self.loads(name)} == {"antifreeze"}, name


def needs(*packages: str) -> pytest.MarkDecorator:
    """Skip what needs packages that are not there."""
    missing = [name for name in packages if not _is_there(name)]
    return pytest.mark.skipif(
        bool(missing), reason=f"{', '.join(missing)} not installed (make test-all does that)"
    )


def flat(batches: Sequence[Sequence[int]]) -> list[int]:
    return [index for batch in batches for index in batch]


def each_times(rows: Sequence[int], length: int, times: int) -> bool:
    """Tell whether each row was there so many times, and no other."""
    return Counter(rows) == dict.fromkeys(range(length), times)


def launch(
    program: str,
    folder: Path,
    *arguments: str,
    way: str = OWN,
    before: Sequence[str] = (),
    more: dict[str, str] | None = None,
) -> Ending:
    """Run one of the programs to its end; `before`: what launches it, `more`: environment."""
    mark = new_mark()
    facts = {**mark, "WAY": TORCH if way == RUN else way, "FOLDER": str(folder)}
    script = [str(PROGRAMS / program), *arguments]
    if way == RUN:
        script = ["-m", "antifreeze", "run", *script]
    command = [*(before or [sys.executable]), *script]
    begun = time.monotonic()
    with (folder / "out").open("w") as out, (folder / "err").open("w") as err:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=os.environ | environment(folder) | facts | (more or {}),
            cwd=folder,
            start_new_session=True,
        )
        try:
            code = _wait(process)
            seconds = time.monotonic() - begun
            left = settled(mark) if code is not None else ()
        finally:
            end(process, mark)
    texts = [(folder / name).read_text(errors="replace") for name in ("out", "err")]
    return Ending(code, *texts, seconds, left, folder)


def torchrun(ranks: int) -> list[str]:
    """Give what launches so many ranks on this machine."""
    one = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return [*one, f"--nproc-per-node={ranks}"]


def _is_there(name: str) -> bool:
    if name == "torchvision" and (_BESIDE / name).is_dir():
        return True
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def environment(folder: Path) -> dict[str, str]:
    """Give what trainers should know: use no network and no accelerator, write only here."""
    source = str(Path(antifreeze.__file__).parent.parent)
    paths = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        "PYTHONPATH": os.pathsep.join(paths),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "GLOO_SOCKET_IFNAME": "lo",
        "HF_HUB_OFFLINE": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "YOLO_AUTOINSTALL": "false",
        "YOLO_CONFIG_DIR": str(folder),
        "YOLO_OFFLINE": "true",
    }


def _wait(process: subprocess.Popen[bytes]) -> int | None:
    try:
        return process.wait(timeout=BOUND_S)
    except subprocess.TimeoutExpired:
        return None
