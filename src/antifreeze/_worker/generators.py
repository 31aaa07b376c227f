"""The generators a dataset may draw from, each behind the same few calls.

1. `seed` makes the stream a function of a 64-bit number, and forgets numbers kept for a later call
   (of a pair of normal ones). Each generator must be given numbers of its own: numpy and torch give
   the same stream for the same seed.
2. `mark` changes whenever somebody draws, seeds, or sets the state. It is cheap: it is asked for
   with every batch, where nothing is drawn.
3. `save` and `restore` take and give back the whole state. One that `keeps` a number for a later
   call can be drawn from without a change of the mark.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import random
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, Protocol

import torch

LOW_32 = 0xFFFFFFFF
LOW_64 = 0xFFFFFFFFFFFFFFFF
DEPTH = 3  # attributes, lists and dicts deep, a dataset's own generators are looked for
LOOKED_AT = 1_000  # objects, at most: a dataset may hold a list of millions
_ATOMS = (str, bytes, int, float, type(None), torch.Tensor)


class Generator(Protocol):
    def seed(self, number: int) -> None: ...

    def mark(self) -> object: ...

    def save(self) -> Any: ...

    def restore(self, state: Any) -> object: ...

    def keeps(self, state: Any) -> bool: ...


class PythonGenerator:
    """A `random.Random`: the module's own, or another."""

    def __init__(self, generator: random.Random) -> None:
        self.seed: Callable[[int], None] = generator.seed
        self.save: Callable[[], Any] = generator.getstate
        self.restore: Callable[[Any], None] = generator.setstate
        offset = _offset_in_python() if type(generator) is random.Random else None
        self.mark: Callable[[], object] = generator.getstate
        if offset is not None:
            self.mark = _peek(id(generator) + offset, _PYTHON_PEEK)
            self._alive = generator  # as long as we look at its memory

    def keeps(self, state: Any) -> bool:
        return state[2] is not None  # of `gauss`


class LegacyNumpyGenerator:
    """A `numpy.random.RandomState`: the module's own, or another."""

    def __init__(self, generator: Any) -> None:
        self._generator = generator
        self.restore: Callable[[Any], None] = generator.set_state
        bits = generator._bit_generator
        # Position and last word: numpy's own documented address of its state.
        address = bits.ctypes.state_address + 623 * 4
        self.mark: Callable[[], object] = _peek(address, 8)

    def seed(self, number: int) -> None:
        self._generator.seed(number & LOW_32)

    def save(self) -> Any:
        return self._generator.get_state(legacy=False)

    def keeps(self, state: Any) -> bool:
        return bool(state["has_gauss"])


class NumpyGenerator:
    """A `numpy.random.Generator` over any bit generator."""

    def __init__(self, generator: Any) -> None:
        self._bits = generator.bit_generator

    def seed(self, number: int) -> None:
        self._bits.state = type(self._bits)(number).state

    def mark(self) -> object:
        return as_bytes(self._bits.state)

    def save(self) -> Any:
        return self._bits.state

    def restore(self, state: Any) -> None:
        self._bits.state = state

    def keeps(self, state: Any) -> bool:
        return False  # half of a word, perhaps: it is part of the mark


class TorchGenerator:
    """A `torch.Generator` of the CPU: the default one, or another."""

    def __init__(self, generator: torch.Generator, *, keeps_name: bool = False) -> None:
        self._generator = generator
        # `torch.initial_seed()` must go on to name the worker's seed, which people read.
        self._name = generator.initial_seed().to_bytes(8, "little") if keeps_name else None
        self.save: Callable[[], Any] = generator.get_state
        self.restore: Callable[[Any], object] = generator.set_state
        offset = _offset_in_torch()
        self.mark: Callable[[], object] = self._whole
        if offset is not None:
            self.mark = _peek(_address(generator) + offset, _TORCH_PEEK)

    def seed(self, number: int) -> None:
        # Not `torch.manual_seed`, which goes to all devices: 160 us.
        self._generator.manual_seed(number & LOW_64)
        if self._name is not None:
            state = self._generator.get_state()
            ctypes.memmove(state.data_ptr(), self._name, len(self._name))
            self._generator.set_state(state)

    def keeps(self, state: Any) -> bool:
        return bool(state[_TORCH_WORDS:].any())

    def _whole(self) -> object:
        return as_bytes(self._generator.get_state())


def global_generators() -> list[tuple[str, Generator]]:
    """Give those that belong to the process, by name."""
    found: list[tuple[str, Generator]] = [("random", PythonGenerator(random._inst))]
    numpy = numpy_if_there()
    if numpy is not None:
        found.append(("numpy.random", LegacyNumpyGenerator(numpy.random.mtrand._rand)))
    found.append(("torch", TorchGenerator(torch.default_generator, keeps_name=True)))
    return found


def own_generators(roots: tuple[Any, ...]) -> list[tuple[str, Generator]]:
    """Give those in these objects' attributes, to a small depth, by their path."""
    numpy = numpy_if_there()
    shared = {id(random._inst), id(torch.default_generator)}
    if numpy is not None:
        shared.add(id(numpy.random.mtrand._rand))
    found: list[tuple[str, Generator]] = []
    for path, thing in _things_in(roots):
        if id(thing) in shared:
            continue
        if isinstance(thing, random.Random) and not isinstance(thing, random.SystemRandom):
            found.append((path, PythonGenerator(thing)))
        elif isinstance(thing, torch.Generator):
            if thing.device.type == "cpu":
                found.append((path, TorchGenerator(thing)))
        elif numpy is not None and isinstance(thing, numpy.random.RandomState):
            if type(thing._bit_generator).__name__ == "MT19937":
                found.append((path, LegacyNumpyGenerator(thing)))
        elif numpy is not None and isinstance(thing, numpy.random.Generator):
            found.append((path, NumpyGenerator(thing)))
    return found


def as_bytes(state: Any) -> bytes:
    """Give a saved state as bytes that are equal if and only if the states are. (Pickled, equal
    ones differ.)"""
    if isinstance(state, dict):
        return b"".join(key.encode() + b":" + as_bytes(state[key]) for key in sorted(state))
    if isinstance(state, torch.Tensor):
        return state.numpy().tobytes()
    if hasattr(state, "tobytes"):
        return bytes(state.tobytes())
    return repr(state).encode()


def numpy_if_there() -> Any:
    """Give numpy if torch could use it; a program without numpy must work too."""
    if "numpy" in sys.modules:
        return sys.modules["numpy"]
    try:
        import numpy
    except ImportError:
        return None
    return numpy


def _things_in(roots: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    """Yield what is in attributes, lists, tuples and dicts, breadth first, each once."""
    seen = {id(root) for root in roots}
    level = [(type(root).__name__, root) for root in roots]
    for _ in range(DEPTH):
        following = []
        for path, thing in level:
            for name, inner in _inside(path, thing):
                if id(inner) in seen or isinstance(inner, _ATOMS):
                    continue
                if len(seen) > LOOKED_AT:
                    return
                seen.add(id(inner))
                yield name, inner
                following.append((name, inner))
        level = following


def _inside(path: str, thing: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(thing, dict):
        for key, inner in list(itertools.islice(thing.items(), LOOKED_AT)):
            yield f"{path}[{key!r}]", inner
    elif isinstance(thing, list | tuple):
        for place, inner in enumerate(list(thing[:LOOKED_AT])):
            yield f"{path}[{place}]", inner
    elif not isinstance(thing, type | ModuleType):
        try:
            attributes = list(vars(thing).items())
        except TypeError:  # it has none
            return
        for name, inner in attributes:
            yield f"{path}.{name}", inner


# ---- where the words of a generator lie in memory -----------------------------------------------

_PYTHON_PEEK = 12  # bytes: the position and two words (a seed does not change the first)
_TORCH_PEEK = 16  # bytes: the same, and whether it was seeded
_SEED = 0x1234567890ABCDEF
_TORCH_WORDS = 24 + 624 * 8  # bytes of a saved state up to what is kept of a pair of normal numbers


def _address(generator: torch.Generator) -> int:
    address: int = generator._cdata  # type: ignore[attr-defined]
    return address


def _peek(address: int, size: int) -> Callable[[], bytes]:
    view = memoryview((ctypes.c_ubyte * size).from_address(address)).cast("B")
    return view.tobytes  # 45 ns; `ctypes.string_at` takes 600


@functools.cache
def _offset_in_python() -> int | None:
    """Say where `random.Random` has its position, as tried out; None if it is not so here."""
    trial = random.Random(1)
    offset = object.__basicsize__
    mark = _peek(id(trial) + offset, _PYTHON_PEEK)
    before = mark()
    trial.random()
    moved = int.from_bytes(mark()[:4], "little")
    trial.setstate(trial.getstate())
    return offset if before != mark() and moved == trial.getstate()[1][-1] else None


@functools.cache
def _offset_in_torch() -> int | None:
    """Say where `torch.Generator` has its position, as tried out; None if it is not so here."""
    trial = torch.Generator()
    trial.manual_seed(_SEED)
    start = ctypes.string_at(_address(trial), 256)  # of an object of more than 2,500 bytes
    seed_at = start.find(_SEED.to_bytes(8, "little"))
    if seed_at < 0:
        return None
    mark = _peek(_address(trial) + seed_at + 8, _TORCH_PEEK)
    marks = [mark()]
    for _ in range(3):
        torch.rand(1, generator=trial)
        marks.append(mark())
    left = [int.from_bytes(each[:4], "little") for each in marks[1:]]
    return seed_at + 8 if left == [624, 623, 622] else None
