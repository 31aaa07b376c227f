"""The generators a dataset may draw from, each behind the same few calls.

1. `seed` makes the stream a function of a 64-bit number, and forgets numbers kept for a later call
   (of a pair of normal ones). Each generator must be given numbers of its own: numpy and torch give
   the same stream for the same seed.
2. `mark` changes whenever somebody draws, seeds, or sets the state. It is cheap: it is asked for
   with every batch, where nothing is drawn.
3. `save` and `restore` take and give back the whole state. One that `keeps` a number for a later
   call can be drawn from without a change of the mark.
4. `lend` saves a state that is hardly ever given back: it may be cheap, and restoring it dear.
"""

from __future__ import annotations

import ctypes
import functools
import random
import struct
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any, Protocol

import torch

from .._torch_internals import address_of
from .dataset_walk import in_function, is_users, things_in

LOW_32 = 0xFFFFFFFF
LOW_64 = 0xFFFFFFFFFFFFFFFF


class Generator(Protocol):
    """A generator. `GlobalGenerator` says what one of the process has beyond this."""

    def seed(self, number: int) -> None: ...

    def mark(self) -> object: ...

    def save(self) -> Any: ...

    def lend(self) -> Any: ...

    def restore(self, state: Any) -> object: ...

    def keeps(self, state: Any) -> bool: ...


class GlobalGenerator(Generator, Protocol):
    def is_present(self) -> bool:
        """Whether it is still the one that the process uses; take note of its seed's name."""


class PythonGenerator:
    """A `random.Random`: the module's own, or another."""

    def __init__(self, generator: random.Random) -> None:
        self._generator = generator
        self.seed: Callable[[int], None] = generator.seed
        self.save: Callable[[], Any] = generator.getstate
        self.lend = self.save
        self.restore: Callable[[Any], None] = generator.setstate
        offset = _offset_in_python() if type(generator) is random.Random else None
        self.mark: Callable[[], object] = generator.getstate
        if offset is not None:
            self.mark = _peek(id(generator) + offset, _PYTHON_PEEK)

    def is_present(self) -> bool:
        return random._inst is self._generator

    def keeps(self, state: Any) -> bool:
        return state[2] is not None  # of `gauss`


class LegacyNumpyGenerator:
    """A `numpy.random.RandomState`: the module's own, or another."""

    def __init__(self, generator: Any) -> None:
        self._generator = generator
        self.restore: Callable[[Any], None] = generator.set_state
        self._bits = generator._bit_generator  # as long as we look at its memory
        # Position and last word: numpy's own documented address of its state.
        address = self._bits.ctypes.state_address + 623 * 4
        self.mark: Callable[[], object] = _peek(address, 8)

    def is_present(self) -> bool:
        # Programs may put another source of bits in numpy's own generator.
        bits: object = sys.modules["numpy.random.mtrand"]._rand._bit_generator
        return bits is self._bits

    def seed(self, number: int) -> None:
        self._generator.seed(number & LOW_32)

    def save(self) -> Any:
        return self._generator.get_state(legacy=False)

    lend = save

    def keeps(self, state: Any) -> bool:
        return bool(state["has_gauss"])


class NumpyGenerator:
    """Any bit generator of numpy's: that of a `numpy.random.Generator`, say."""

    def __init__(self, bits: Any) -> None:
        self._bits = bits

    def is_present(self) -> bool:
        return _numpys_bits() is self._bits

    def seed(self, number: int) -> None:
        self._bits.state = type(self._bits)(number).state

    def mark(self) -> object:
        return as_bytes(self._bits.state)

    def save(self) -> Any:
        return self._bits.state

    lend = save

    def restore(self, state: Any) -> None:
        self._bits.state = state

    def keeps(self, state: Any) -> bool:
        return False  # half of a word, perhaps: it is part of the mark


class TorchGenerator:
    """A `torch.Generator` of the CPU: the default one, or another."""

    def __init__(self, generator: torch.Generator, *, keeps_name: bool = False) -> None:
        self._generator = generator
        # `torch.initial_seed()` must go on to name the worker's seed, which people read.
        self._read_name: Callable[[], bytes] = self._named
        self.save: Callable[[], Any] = generator.get_state
        self._memory: Callable[[], bytes] | None = None
        self._kept_nothing: bytes | None = None  # the end of that memory, when it kept nothing
        offset = _offset_in_torch()
        self.mark: Callable[[], object] = self._whole
        if offset is not None:
            address = (address_of(generator) or 0) + offset
            self.mark = _peek(address, _TORCH_PEEK)
            if _knows_torchs_memory():
                self._memory = _peek(address - 8, _TORCH_MEMORY)
                self._read_name = _peek(address - 8, 8)
        self._name = self._read_name() if keeps_name else None

    def seed(self, number: int) -> None:
        # Not `torch.manual_seed`, which goes to all devices: 160 us.
        self._generator.manual_seed(number & LOW_64)
        if self._name is not None:
            state = self._generator.get_state()
            ctypes.memmove(state.data_ptr(), self._name, len(self._name))
            self._generator.set_state(state)

    def is_present(self) -> bool:
        if self._name is not None:  # the program may have called `torch.manual_seed`
            self._name = self._read_name()
        return torch.default_generator is self._generator

    def _named(self) -> bytes:
        return self._generator.initial_seed().to_bytes(8, "little")

    def lend(self) -> Any:
        """Return a copy of its memory if it keeps no number, which takes a tenth of the time."""
        if self._memory is None:
            return self.save()
        memory = self._memory()
        if memory[_TORCH_KEPT:] == self._kept_nothing:
            return memory
        state = self.save()
        if not self.keeps(state) and self._memory() == memory:
            self._kept_nothing = memory[_TORCH_KEPT:]
        return state

    def restore(self, state: Any) -> None:
        self._generator.set_state(_torch_state(state) if type(state) is bytes else state)

    def keeps(self, state: Any) -> bool:
        if type(state) is bytes:
            return False
        kept = ctypes.string_at(state.data_ptr() + _TORCH_WORDS, state.nbytes - _TORCH_WORDS)
        return any(kept)  # 1 us; as a tensor it would take 5

    def _whole(self) -> object:
        return as_bytes(self._generator.get_state())


def global_generators() -> list[tuple[str, GlobalGenerator]]:
    """Give those that belong to the process, by name."""
    found: list[tuple[str, GlobalGenerator]] = [("random", PythonGenerator(random._inst))]
    numpy = numpy_if_there()
    if numpy is not None:
        found.append(("numpy.random", _of_numpy(numpy.random.mtrand._rand)))
    found.append(("torch", TorchGenerator(torch.default_generator, keeps_name=True)))
    return found


def own_generators(roots: tuple[Any, ...]) -> list[tuple[str, Generator]]:
    """Give those in these objects' attributes and classes, to a small depth, by their path."""
    numpy = numpy_if_there()
    shared = {id(random._inst), id(torch.default_generator)}
    if numpy is not None:
        shared.add(id(numpy.random.mtrand._rand))
    found: list[tuple[str, Generator]] = []
    for path, thing in [*things_in(roots, classes=True), *_in_modules(roots)]:
        if id(thing) in shared:
            continue
        shared.add(id(thing))
        try:
            generator = _as_generator(thing, numpy)
            if generator is not None and _works(generator):
                found.append((path, generator))
        except Exception:  # of the user's own making, and not what it seems: left alone
            continue
    return found


def _in_modules(roots: tuple[Any, ...]) -> list[tuple[str, Any]]:
    """Give the generators among the globals of the modules that the roots, and what they hold, are
    from, and in their functions; not of libraries that are known."""
    names: dict[str, None] = {}
    for thing in (*roots, *(inner for _, inner in things_in(roots, classes=True))):
        kind = thing if type(thing) is FunctionType else type(thing)
        for each in getattr(kind, "__mro__", (kind,)):
            names[str(getattr(each, "__module__", ""))] = None
    found = []
    for name in names:
        if not is_users(name) or name not in sys.modules:
            continue
        for attribute, value in list(vars(sys.modules[name]).items()):
            if type(value).__name__ in KINDS:
                found.append((f"{name}.{attribute}", value))
            elif type(value) is FunctionType and value.__module__ == name:
                held = in_function(f"{name}.{attribute}", value)
                found += [(path, it) for path, it in held if type(it).__name__ in KINDS]
    return found


KINDS = frozenset({"Random", "Generator", "RandomState"})


def _as_generator(thing: Any, numpy: Any) -> Generator | None:
    if isinstance(thing, random.Random) and not isinstance(thing, random.SystemRandom):
        return PythonGenerator(thing)
    if isinstance(thing, torch.Generator) and thing.device.type == "cpu":
        return TorchGenerator(thing)
    if numpy is None:
        return None
    if isinstance(thing, numpy.random.RandomState):
        return _of_numpy(thing)
    return (
        NumpyGenerator(thing.bit_generator) if isinstance(thing, numpy.random.Generator) else None
    )


def _of_numpy(generator: Any) -> GlobalGenerator:
    """Give numpy's legacy kind of generator; people may have put another source of bits in it."""
    bits = generator._bit_generator
    if type(bits).__name__ == "MT19937":
        return LegacyNumpyGenerator(generator)
    return NumpyGenerator(bits)


def _numpys_bits() -> Any:
    """Return what numpy's own generator has its bits from; programs may put another in it."""
    return sys.modules["numpy.random.mtrand"]._rand._bit_generator


def _works(generator: Generator) -> bool:
    """Try to save, seed and restore once."""
    state = generator.save()
    generator.seed(1)
    generator.restore(state)
    return as_bytes(generator.save()) == as_bytes(state)


def as_bytes(state: Any) -> bytes:
    """Give a saved state as bytes that are equal if and only if the states are. (Pickled, equal
    ones differ.)"""
    if isinstance(state, dict):
        return b"".join(key.encode() + b":" + as_bytes(state[key]) for key in sorted(state))
    if isinstance(state, torch.Tensor):
        return ctypes.string_at(state.data_ptr(), state.nbytes)
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


# ---- where the words of a generator lie in memory -----------------------------------------------

_PYTHON_PEEK = 12  # bytes: the position and two words (a seed does not change the first)
_TORCH_PEEK = 16  # bytes: the same, and whether it was seeded
_SEED = 0x1234567890ABCDEF
_TORCH_WORDS = 24 + 624 * 8  # bytes of a saved state up to what is kept of a pair of normal numbers


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
    return offset if before != mark() and moved == trial.getstate()[1][-1] else None


@functools.cache
def _offset_in_torch() -> int | None:
    """Say where `torch.Generator` has its position, as tried out; None if it is not so here."""
    trial = torch.Generator()
    trial.manual_seed(_SEED)
    address = address_of(trial)
    if address is None:
        return None
    start = ctypes.string_at(address, 256)  # of an object of more than 2,500 bytes
    seed_at = start.find(_SEED.to_bytes(8, "little"))
    if seed_at < 0:
        return None
    mark = _peek(address + seed_at + 8, _TORCH_PEEK)
    marks = [mark()]
    for _ in range(3):
        torch.rand(1, generator=trial)
        marks.append(mark())
    left = [int.from_bytes(each[:4], "little") for each in marks[1:]]
    return seed_at + 8 if left == [624, 623, 622] else None


# Bytes of torch's generator in memory: its seed (8), how many words are left (4), whether it was
# seeded (4), the next word (4), all words, of 4 bytes each, and what it keeps of normal numbers.
_TORCH_KEPT = 20 + 624 * 4 + 4
_TORCH_MEMORY = _TORCH_KEPT + 24


def _torch_state(memory: bytes) -> torch.Tensor:
    """Return a state that keeps nothing, as torch would have saved it, from a copy of memory."""
    seed, left, seeded, following = struct.unpack_from("=Qi?xxxI", memory)
    words = struct.unpack_from("=624I", memory, 20)
    state = struct.pack("=QiiQ624Q40x", seed, left, seeded, following, *words)
    return torch.frombuffer(bytearray(state), dtype=torch.uint8)


@functools.cache
def _knows_torchs_memory() -> bool:
    """Whether `torch.Generator` lies in memory as above, as tried out."""
    offset = _offset_in_torch()
    trial = torch.Generator()
    address = address_of(trial)
    if offset is None or address is None or sys.byteorder != "little":
        return False
    memory = _peek(address + offset - 8, _TORCH_MEMORY)
    tails = []
    for seed in (_SEED, 5):
        trial.manual_seed(seed)
        torch.rand(seed % 1000, generator=trial)
        state = as_bytes(trial.get_state())
        if as_bytes(_torch_state(memory())) != state or memory()[:8] != seed.to_bytes(8, "little"):
            return False
        tails.append(memory()[_TORCH_KEPT:])
    torch.randn(1, generator=trial)  # keeps one of a pair
    kept = trial.get_state()
    y_at = _TORCH_WORDS + 8
    if memory()[-16:-8] != as_bytes(kept)[y_at : y_at + 8] or not any(memory()[-16:-8]):
        return False
    tails.append(memory()[_TORCH_KEPT:])
    trial.manual_seed(5)
    kept = trial.get_state()
    ctypes.memmove(kept.data_ptr() + kept.nbytes - 8, b"abcd\1", 5)  # one of single precision
    trial.set_state(kept)
    tails.append(memory()[_TORCH_KEPT:])
    return tails[3][:4] == b"abcd" and tails[2] not in tails[:2] and tails[3] not in tails[:3]
