"""What a worker notices of the dataset: `_reporting/torch_pitfalls.py` decides what is told."""

from __future__ import annotations

import pickle
import zlib
from collections import deque
from typing import Any

import torch

from .._loading.observations import Change, Changed, Drew, Opening
from .._reporting.torch_pitfalls import FEW, PLENTY
from .._torch_internals import IterDataPipe, MapDataPipe, WorkerInfo
from .dataset_walk import has_own, things_in
from .fingerprints import Contents, is_array
from .rng_adapters import Generator, as_bytes

TALLIED = 20_000  # samples of a worker; where there are more, they are not compared
TALLIED_IN_PARTS = 1_000  # the same, where somebody knows which worker it is: most make parts
PICKLED = 2 * FEW  # samples of a kind of their own
PRINTED = 256  # numbers of an array
PARTS = 8  # of a tuple
IN_BATCH = 4096, 1024  # the same, of a whole batch
ARRAYS = 64  # whose contents are looked at
_LAYERS = 4  # of datasets in datasets: `Subset` and the like
_NUMBERS = (int, float)
_WORDS = (str, bytes, bool)
_SALT = {kind: place for place, kind in enumerate((*_NUMBERS, *_WORDS))}
RUN = 8  # samples
LOOKED_AT_FOR_RUNS = 4096  # samples: what repeats itself until then does so to the end


class Info(WorkerInfo):
    """What `get_worker_info()` returns: knows whether somebody asked which worker this is. In all
    else it is as this torch's own, which since 2.12 is a frozen dataclass."""

    __slots__ = ()
    _asked = False

    def __getattribute__(self, name: str) -> Any:
        if name in ("id", "num_workers"):
            Info._asked = True
        return super().__getattribute__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if _IS_FROZEN:  # a subclass of one may refuse in other words than the class itself
            make, fields = self.__reduce__()
            setattr(make(*fields), name, value)
        else:
            super().__setattr__(name, value)

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        """Pickle as torch's own."""
        fields = getattr(self, "__dataclass_fields__", _FIELDS)
        return _torchs_own, ({name: getattr(self, name) for name in fields},)


Info.__name__ = Info.__qualname__ = WorkerInfo.__name__  # as it is shown, and in its errors
_FIELDS = ("id", "num_workers", "seed", "dataset")  # before 2.12
_IS_FROZEN = getattr(getattr(WorkerInfo, "__dataclass_params__", None), "frozen", False)


def _torchs_own(fields: dict[str, Any]) -> WorkerInfo:
    return WorkerInfo(**fields)


States = list[tuple[str, Generator, bytes]]


def states_of(generators: list[tuple[str, Generator]], dataset: Any) -> States:
    """Take note of the generators of a dataset; not of those that torch seeds in every epoch."""
    kind = type(dataset).__name__
    owners = {kind: dataset, **dict(things_in((dataset,)))}
    states = []
    for path, each in generators:
        owner = type(owners.get(path.rpartition(".")[0]))
        if issubclass(owner, IterDataPipe | MapDataPipe) and hasattr(owner, "set_seed"):
            continue  # alike in all workers, as it should be: they shuffle alike, and then part
        inside = path.startswith(f"{kind}.")
        name = f"dataset{path.removeprefix(kind)}" if inside else path
        states.append((name, each, as_bytes(each.save())))
    return states


def drawn_since(before: States) -> Drew | None:
    """Tell which generators have been drawn from, and the state they were in before."""
    drew = [(path, state) for path, each, state in before if as_bytes(each.save()) != state]
    return Drew(tuple((path, zlib.crc32(state)) for path, state in drew)) if drew else None


class Tally:
    """Sums of samples, the same for two workers that give the same ones: one without an order, and
    one of the first ones in their order."""

    def __init__(self, *, parted: bool = False) -> None:
        """`parted`: somebody was told which worker this is."""
        self._parted = parted
        self._sum: int | None = 0
        self._count = 0
        self._different: set[int] = set()
        self._last: deque[int] = deque(maxlen=RUN)
        self._runs: set[int] = set()  # different ones of so many samples
        self._opening = 0
        self._openings: list[Opening] = []

    @property
    def asked(self) -> bool:
        return self._parted or Info._asked

    def add(self, samples: list[Any]) -> None:
        if self._sum is None:
            return
        try:
            for sample in samples:
                self._add(self._print(sample))
        except Exception:  # of a kind that nobody can compare
            self._stop()
            return
        told = self.asked and self.different >= PLENTY
        if told or self._count > (TALLIED_IN_PARTS if self.asked else TALLIED):
            self._stop()

    def openings(self) -> list[Opening]:
        """Give, once, what the stream began with."""
        found, self._openings = self._openings, []
        return found

    @property
    def sum(self) -> int | None:
        return self._sum

    @property
    def different(self) -> int:
        return len(self._different)

    def _add(self, number: int) -> None:
        assert self._sum is not None
        self._count += 1
        self._sum = self._sum + number & 0xFFFFFFFFFFFFFFFF
        before = self.different
        if before < PLENTY:
            self._opening = hash((self._opening, number))
        self._different.add(number)
        if self.different > before and self.different in (FEW, PLENTY):
            self._openings.append(Opening(self._opening, self.different, self.asked))
        if self.different < FEW and self._count <= LOOKED_AT_FOR_RUNS:
            self._add_run(number)

    def _add_run(self, number: int) -> None:
        """Where there are few different samples, as labels are, look at several at a time."""
        self._last.append(number)
        if len(self._last) < RUN or len(self._runs) >= PLENTY:
            return
        self._runs.add(hash(tuple(self._last)))
        if len(self._runs) == PLENTY:
            self._openings.append(Opening(self._opening, PLENTY, self.asked, runs=True))

    def _print(self, sample: Any) -> int:
        try:
            return _print_of(sample, 2)
        except Exception:
            own = has_own(type(sample), "__getstate__", "__reduce__", "__reduce_ex__")
            if self._count >= PICKLED or own:  # to look must not run code of its own
                raise
            return zlib.crc32(pickle.dumps(sample))

    def _stop(self) -> None:
        self._sum = None
        self._different.clear()


def print_of_batch(batch: Any) -> int | None:
    """Return a fingerprint of a batch, the same for those that are alike; None if there is none."""
    try:
        return zlib.crc32(repr(_print_of(batch, 4, IN_BATCH)).encode())
    except Exception:  # of a kind that nobody can compare
        return None


def _print_of(sample: Any, depth: int, most: tuple[int, int] = (PRINTED, PARTS)) -> int:
    """Take a quick fingerprint: of numbers and words, and of so many elements of arrays, and parts
    of others."""
    kind = type(sample)
    if kind in _SALT:
        if kind is str:
            sample = sample.encode("utf-8", "surrogatepass")
        # Not the hash of words: that is another one in each process that was not forked.
        value = zlib.crc32(sample) if isinstance(sample, bytes) else hash(sample)
        if sample != sample:  # each NaN has a hash of its own
            value = 0
        return hash((_SALT[kind], value)) * 0x9E3779B97F4A7C15 >> 3
    if issubclass(kind, torch.Tensor):
        flat = sample.detach().reshape(-1)
        # A copy: `numpy()` leaves a mark on the memory it shows, which is the user's.
        sample = flat[:: max(1, len(flat) // most[0])].clone().cpu().numpy()
    if hasattr(sample, "tobytes") and not sample.dtype.hasobject:  # those are addresses
        flat = sample.ravel()
        some = flat[:: max(1, len(flat) // most[0])]  # black borders are alike
        return zlib.crc32(some.tobytes()) * 0x9E3779B97F4A7C15 >> 3
    if depth and issubclass(kind, dict):
        sample = list(dict.values(sample))
    if depth and isinstance(sample, list | tuple):
        prints = (_print_of(each, depth - 1, most) for each in sample[: most[1]])
        return hash(tuple(prints)) * 0x9E3779B97F4A7C15 >> 3
    raise TypeError(f"nobody knows what is in a {kind.__name__}")


class Attributes:
    """Attributes of a dataset, and of the one it wraps, as they were at one moment."""

    def __init__(
        self, thing: Any, *, name: str = "dataset", deep: bool = False, contents: bool = False
    ) -> None:
        """`deep`: what its attributes hold, too. (Things that are used change inside.) `contents`:
        what is in arrays and tensors, too."""
        self._name, self._deep, self._contents = name, deep, contents
        self._were = dict(self._look(thing))

    def _look(self, thing: Any) -> list[tuple[str, Any]]:
        found = _attributes(thing, self._name)
        if self._deep:
            found += _all_inside(thing, self._name, {path for path, _ in found})
        told, arrays = [], 0
        for path, value in found:
            if self._contents and _is_watched(path, value):
                arrays += 1
                told.append((path, Contents(value, closely=arrays <= ARRAYS)))
            else:
                told.append((path, _told(value)))
        return told

    def grown(self, dataset: Any) -> Changed | None:
        """Tell counters that count and lists that grow: what people expect to find again."""
        told = []
        for path, value in self._look(dataset):
            was = self._were.get(path)
            private = path.rpartition(".")[2].startswith("_") or "cache" in path
            if was is None or private or type(value) is not type(was):
                continue
            if type(value) in _NUMBERS and value != was and value == value:  # no NaN
                told.append(f"{path} ({was!r}, now {value!r})")
            elif type(value) is _Length and value > was:
                told.append(f"{path} ({was} items, now {value})")
        return Changed(tuple(told)) if told else None

    def changes(self, thing: Any) -> tuple[Change, ...]:
        """Tell everything that was replaced, where there was something before."""
        told = []
        for path, value in self._look(thing):
            was = self._were.get(path)
            same = type(value) is type(was) and (value == was or value != value)  # NaN
            if was is None or same:
                continue
            if type(value) is _Length:
                told.append(Change(f"{path} ({was} items, now {value})"))
            elif isinstance(value, _Identity | Contents):
                told.append(Change(path, is_number=isinstance(value, Contents)))
            else:
                is_number = type(value) in (*_NUMBERS, bool)
                told.append(Change(f"{path} ({_shown(was)}, now {_shown(value)})", is_number))
        return tuple(told)


class _Length(int):
    """Stands for a list, a dict or a set."""


class _Identity(int):
    """Stands for a thing that is what it is."""


def _attributes(thing: Any, name: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    path, layer = name, thing
    for _ in range(_LAYERS):
        # Never by a method that a class may have made its own: to look must not load anything.
        try:
            own = object.__getattribute__(layer, "__dict__")
        except AttributeError:
            break
        for attribute, value in list(own.items()):
            if type(attribute) is str and value is not None:
                found.append((f"{path}.{attribute}", value))
        path, layer = f"{path}.dataset", own.get("dataset")
        if layer is None or name != "dataset":
            break
    return found


def _all_inside(thing: Any, name: str, seen: set[str]) -> list[tuple[str, Any]]:
    """Give the numbers, words and arrays in objects, dicts and lists that its attributes hold."""
    return [
        (path, inner)
        for path, inner in things_in((thing,), name=name, atoms=True)
        if path not in seen
        and not _is_private(path)
        and (type(inner) in (*_NUMBERS, *_WORDS) or _is_watched(path, inner))
    ]


def _is_watched(path: str, thing: Any) -> bool:
    """Say whether to look into an array."""
    return is_array(thing) and not _is_private(path) and "cache" not in path


def _is_private(path: str) -> bool:
    return any(step.startswith("_") for step in path.split("."))


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
