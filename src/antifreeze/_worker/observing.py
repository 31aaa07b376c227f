"""What a worker notices for the user's sake: see `_core/traps.py` for what becomes of it."""

from __future__ import annotations

import pickle
import zlib
from typing import Any

from torch.utils.data._utils.worker import WorkerInfo

from .._core.traps import Changed, FirstBatch
from .._transport.packing import Packed

LOOKED_AT = 16 * 1024 * 1024  # bytes of a first batch; once a worker
_LAYERS = 4  # of datasets in datasets: `Subset` and the like
_NUMBERS = (int, float)
_WORDS = (str, bytes, bool)


class Info(WorkerInfo):
    """What `get_worker_info()` gives; knows whether somebody asked which worker this is."""

    asked = False

    def __getattribute__(self, name: str) -> Any:
        if name in ("id", "num_workers"):
            Info.asked = True
        return super().__getattribute__(name)


def first_batch(packed: Packed, slab: memoryview | None) -> FirstBatch | None:
    """Take a fingerprint of the first batch of a stream whose dataset does not ask who it is."""
    if Info.asked:
        return None
    shape = pickle.dumps((packed.skeleton, packed.table, packed.offsets))
    seen = zlib.crc32(memoryview(packed.inline)[:LOOKED_AT], zlib.crc32(shape))
    if slab is not None:
        seen = zlib.crc32(slab[: min(packed.slab_bytes, LOOKED_AT)], seen)
    return FirstBatch(seen)


class Attributes:
    """Attributes of a dataset, and of the one it wraps, as they were at one moment."""

    def __init__(self, dataset: Any) -> None:
        self._were = dict(_attributes(dataset))

    def grown(self, dataset: Any) -> Changed | None:
        """Tell counters that count and lists that grow: what people expect to find again."""
        told = []
        for path, value in _attributes(dataset):
            was = self._were.get(path)
            private = path.rpartition(".")[2].startswith("_") or "cache" in path
            if was is None or private or type(value) is not type(was):
                continue
            if type(value) in _NUMBERS and value != was:
                told.append(f"{path} ({was!r}, now {value!r})")
            elif type(value) is _Length and value > was:
                told.append(f"{path} ({was} items, now {value})")
        return Changed(tuple(told)) if told else None

    def changes(self, dataset: Any) -> tuple[str, ...]:
        """Tell everything that was replaced, where there was something before."""
        told = []
        for path, value in _attributes(dataset):
            was = self._were.get(path)
            if was is None or (type(value) is type(was) and value == was):
                continue
            if type(value) is _Length:
                told.append(f"{path} ({was} items, now {value})")
            elif isinstance(value, _Identity):
                told.append(path)
            else:
                told.append(f"{path} ({_shown(was)}, now {_shown(value)})")
        return tuple(told)


class _Length(int):
    """Stands for a list, a dict or a set."""


class _Identity(int):
    """Stands for a thing that is what it is."""


def _attributes(dataset: Any) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    path, layer = "dataset", dataset
    for _ in range(_LAYERS):
        # Never by a method that a class may have made its own: to look must not load anything.
        try:
            own = object.__getattribute__(layer, "__dict__")
        except AttributeError:
            break
        for name, value in list(own.items()):
            if type(name) is str and value is not None:
                found.append((f"{path}.{name}", _told(value)))
        path, layer = f"{path}.dataset", own.get("dataset")
        if layer is None:
            break
    return found


def _told(value: Any) -> Any:
    kind = type(value)
    if kind in _NUMBERS or kind in _WORDS:
        return value
    if kind in (list, dict, set):
        return _Length(len(value))
    return _Identity(id(value))


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:36]} ..."
