"""Faults from outside, as the loop sees them: ordered at a batch, done by the striker."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from .contents import HIT_LOG
from .recipes import Recipe, Strike

SYNC_S = 30.0


@dataclass(frozen=True)
class Hit:
    """A fault that was done: when, and at which samples its victims were."""

    kind: str
    at: float
    victims: int
    samples: tuple[tuple[int, float], ...]  # the index, and when it was begun


class Striker:
    """The program that strikes. One for a whole run: orders must not wait for it to start."""

    def __init__(self) -> None:
        path = Path(__file__).with_name("striker.py")
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-E", str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        self._buffer = b""
        self._ids = self._syncs = 0

    @property
    def pid(self) -> int:
        return self._process.pid

    def order(self, strike: Strike, folder: Path) -> int:
        """Have it done; give the number of the order."""
        self._ids += 1
        self._write(
            {
                "order": "strike",
                "id": self._ids,
                "program": os.getpid(),
                "folder": str(folder),
                "whom": strike.whom,
                "how": strike.how,
                "which": strike.which,
                "after_s": strike.after_s,
                "pause_s": strike.pause_s,
            }
        )
        return self._ids

    def answers(self) -> list[dict[str, Any]]:
        """Give what was done since; never waits."""
        assert self._process.stdout is not None
        while True:  # bounded by what is there
            try:
                data = os.read(self._process.stdout.fileno(), 65536)
            except BlockingIOError:
                break
            if not data:
                raise RuntimeError("the striker has ended")
            self._buffer += data
        *lines, self._buffer = self._buffer.split(b"\n")
        return [json.loads(line) for line in lines]

    def sync(self) -> list[dict[str, Any]]:
        """Have what is not done yet left alone; give what was done."""
        self._syncs += 1
        self._write({"order": "sync", "number": self._syncs})
        assert self._process.stdout is not None
        told: list[dict[str, Any]] = []
        give_up = time.monotonic() + SYNC_S
        while {"synced": self._syncs} not in told:
            if time.monotonic() > give_up:
                raise RuntimeError("the striker does not answer")
            select.select([self._process.stdout], [], [], 1.0)
            told += self.answers()
        return [each for each in told if "synced" not in each]

    def _write(self, order: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()

    def __enter__(self) -> Striker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(SYNC_S)
        self._process.stdout.close()


class Campaign:
    """The strikes of one recipe, in their turn; and all hits, from inside and outside.

    The next one is ordered when the batches that the last one hit have come: a batch that is hit
    twice may be raised, and would teach nothing.
    """

    def __init__(self, recipe: Recipe, striker: Striker, folder: Path) -> None:
        self._striker, self._folder = striker, folder
        self._left = list(recipe.strikes)
        self._window = recipe.workers * (recipe.prefetch or 2) + 2
        self._ordered: dict[int, Strike] = {}
        self._quiet_until = 0  # batches
        self._awaited: set[int] = set()  # samples
        self.batches = 0
        self.outside: list[Hit] = []

    def before(self, epoch: int) -> None:
        """Do what is due before a loop begins."""
        self._take(self._striker.answers())
        if self._left and self._left[0].at_batch < 0 and not self._ordered:
            self._order(self._left.pop(0))

    def delivered(self, place: int, indices: tuple[int, ...]) -> None:
        """Do what is due after a batch has come."""
        self.batches += 1
        self._take(self._striker.answers())
        self._awaited.difference_update(indices)
        if not self._left or self._ordered:
            return
        if self._awaited and self.batches < self._quiet_until:
            return
        if self._left[0].at_batch <= place:
            self._order(self._left.pop(0))

    def finish(self) -> None:
        self._take(self._striker.sync())
        self._ordered.clear()

    def inside(self) -> list[Hit]:
        """Read what samples have done."""
        log = self._folder / HIT_LOG
        if not log.exists():
            return []
        hits = [json.loads(line) for line in log.read_text().splitlines()]
        return [Hit(hit["kind"], hit["at"], 1, ((hit["index"], hit["at"]),)) for hit in hits]

    def _order(self, strike: Strike) -> None:
        self._ordered[self._striker.order(strike, self._folder)] = strike

    def _take(self, answers: list[dict[str, Any]]) -> None:
        for answer in answers:
            strike = self._ordered.pop(answer.get("id", 0), None)
            if strike is None or not answer["victims"]:
                continue
            samples = tuple((int(index), float(began)) for index, began in answer["boards"])
            self.outside.append(Hit(strike.kind, answer["at"], len(answer["victims"]), samples))
            self._awaited = {index for index, _ in samples}
            self._quiet_until = self.batches + 4 * self._window
