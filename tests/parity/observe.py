"""What a loop sees of a loader, as plain data by which two loaders can be compared."""

import contextlib
import dataclasses
import re
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import Enum
from types import FrameType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from PIL import Image

import antifreeze

LoaderClass = type[torch.utils.data.DataLoader]

OURS: LoaderClass = antifreeze.DataLoader
LOADERS: dict[str, LoaderClass] = {"antifreeze": OURS, "torch": torch.utils.data.DataLoader}

# No program here has this many batches: reaching it means an epoch that does not end.
EVENTS_AN_EPOCH = 400


@dataclasses.dataclass(frozen=True)
class Batch:
    """A batch came; `seen` is its description."""

    seen: object


@dataclasses.dataclass(frozen=True)
class Error:
    """An exception came; its type and the first line of its message."""

    kind: type[BaseException]
    first_line: str


@dataclasses.dataclass(frozen=True)
class End:
    """The epoch ended."""


Event = Batch | Error | End


def first_line(error: BaseException) -> str:
    """Give what people search their logs for."""
    return str(error).split("\n", 1)[0]


def whole_text(error: BaseException) -> str:
    """Give all a reader sees of an exception without its traceback: message and notes."""
    return "\n".join([str(error), *getattr(error, "__notes__", [])])


def notes(error: BaseException) -> str:
    """Give the notes of an exception as one text."""
    return "\n".join(getattr(error, "__notes__", []))


def error_of(loop: Iterable[Any]) -> BaseException:
    """Run a loop until it raises; give the exception, which no longer holds the iterator."""
    try:
        for _ in loop:
            pass
    except Exception as error:
        # See below: with torch's cycle unbroken, the next collection would wait for its workers.
        traceback.clear_frames(error.__traceback__)
        return error
    raise AssertionError("the epoch ended without an error")


def assert_names(error: BaseException, index: int, worker: int) -> None:
    """Hold that the notes name the sample and the worker."""
    text = notes(error)
    assert re.search(rf"\b{index}\b", text), text
    assert re.search(rf"worker\D*{worker}\b", text, re.IGNORECASE), text


def watch(
    loader: torch.utils.data.DataLoader,
    epochs: int = 1,
    see: Callable[[Any], object] | None = None,
) -> list[list[Event]]:
    """Run whole epochs, going on after errors as a stubborn caller does; list what came.

    To a `for` loop an error of `iter(loader)` is one of the first `next()`; here too.
    """
    return [_watch_epoch(loader, see or describe) for _ in range(epochs)]


def _watch_epoch(loader: torch.utils.data.DataLoader, look: Callable[[Any], object]) -> list[Event]:
    events: list[Event] = []
    try:
        iterator = iter(loader)
    except Exception as error:
        return [Error(type(error), first_line(error)), End()]
    while len(events) < EVENTS_AN_EPOCH:
        try:
            batch = next(iterator)
        except StopIteration:
            events.append(End())
            break
        except Exception as error:
            events.append(Error(type(error), first_line(error)))
            # torch re-raises a worker's exception from a frame that holds it: a cycle through the
            # iterator, whose clean-up the collector might then run inside a forked worker.
            traceback.clear_frames(error.__traceback__)
        else:
            events.append(Batch(look(batch)))
    # An ended iterator stays ended; a loop that asks again must not start a new epoch.
    for _ in range(2):
        try:
            next(iterator)
        except StopIteration:
            continue
        events.append(Error(AssertionError, "the iterator went on after its end"))
    return events


def without_worker_numbers(events: list[Event]) -> list[Event]:
    """Blank the worker's number in messages, where the schedule is free to choose the worker."""
    return [
        Error(event.kind, re.sub(r"worker process \d+", "worker process N", event.first_line))
        if isinstance(event, Error)
        else event
        for event in events
    ]


class Hung(AssertionError):
    """A program did not come to its end in the time it was given."""


@contextlib.contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """Turn a hang into a failure of the program that hangs, so that it can be reported.

    For the main thread only. The time limit of a whole test would end the whole run.
    """

    def give_up(number: int, frame: FrameType | None) -> None:
        raise Hung(f"no end after {seconds} s")

    previous = signal.signal(signal.SIGALRM, give_up)
    rest, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, rest)
        signal.signal(signal.SIGALRM, previous)


def wait_until(condition: Callable[[], object], within_s: float) -> bool:
    """Poll a condition with a bound; say whether it came true."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def caught_warnings(program: Callable[[], object]) -> list[tuple[type[Warning], str]]:
    """Run a program and list category and text of each warning it gave.

    Not Python's own at every fork, from 3.12 on: ours has one process more to fork, and Python also
    counts threads that are just ending.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", message="This DataLoader will create")
        warnings.filterwarnings("ignore", message="This process .* is multi-threaded")
        program()
    return [(warning.category, str(warning.message)) for warning in caught]


def describe(value: Any, blind: Collection[str] = ()) -> object:
    """Say everything a program could notice about a value: types, dtypes, shapes, values, order.

    Values under a mapping's key in `blind` are described by type, dtype and shape alone.
    """
    return _Describer(frozenset(blind)).describe(value)


class _Describer:
    def __init__(self, blind: frozenset[str]) -> None:
        self.blind = blind
        self.seeing = True

    def describe(self, value: Any) -> object:
        kind = type(value)
        match value:
            case torch.Tensor():
                return (kind, *self._tensor(value))
            case np.ma.MaskedArray():
                return (kind, self.describe(value.filled()), self._bytes(np.asarray(value.mask)))
            case np.ndarray():
                return (kind, *self._array(value))
            case np.generic():
                return (kind, *self._array(np.asarray(value)))
            case Image.Image():
                return (kind, value.mode, value.size, value.tobytes(), value.getpalette())
            case torch.nn.Module():
                return (kind, repr(value), self.describe(value.state_dict()))
            case Enum() | type():
                return (kind, value)
            case Mapping():
                return (kind, tuple(self._item(key, item) for key, item in value.items()))
            case tuple() | list():
                return (kind, tuple(self.describe(item) for item in value), self._state(value))
            case set() | frozenset():
                return (kind, tuple(sorted((self.describe(item) for item in value), key=repr)))
            case SimpleNamespace():
                return (kind, self.describe(vars(value)))
            case _ if dataclasses.is_dataclass(value):
                names = [field.name for field in dataclasses.fields(value)]
                return (kind, tuple((name, self.describe(getattr(value, name))) for name in names))
            case float():
                return (kind, value.hex() if self.seeing else "unseen")
            case int() if not self.seeing:
                return (kind, "unseen")
            case _ if kind.__repr__ is object.__repr__ and hasattr(value, "__dict__"):
                return (kind, self.describe(vars(value)))
            case _:
                return (kind, repr(value))

    def _item(self, key: Any, item: Any) -> object:
        if key in self.blind:
            outer = _Describer(frozenset())
            outer.seeing = False
            return (self.describe(key), outer.describe(item))
        return (self.describe(key), self.describe(item))

    def _state(self, value: Any) -> object:
        return self.describe(vars(value)) if vars_of(value) else ()

    def _tensor(self, tensor: torch.Tensor) -> tuple[object, ...]:
        plain = tensor.detach()
        if type(plain) is not torch.Tensor and not tensor.is_nested:
            plain = plain.as_subclass(torch.Tensor)
        extra = {name: item for name, item in vars_of(tensor).items() if not name.startswith("_")}
        head = (
            str(tensor.dtype),
            str(tensor.layout),
            str(tensor.device),
            tensor.requires_grad,
            self.describe(extra) if extra else (),
        )
        if tensor.is_nested:
            parts = tensor.detach().unbind()
            return (*head, tuple(self.describe(part) for part in parts))
        shape = tuple(tensor.shape)
        if tensor.device.type == "meta" or not self.seeing:
            return (*head, shape)
        if tensor.is_quantized:
            return (*head, shape, str(tensor.qscheme()), *self._quantized(plain))
        if tensor.layout is not torch.strided:
            return (*head, shape, plain._nnz(), self._dense_bytes(plain.to_dense()))
        return (*head, shape, self._dense_bytes(plain))

    def _quantized(self, tensor: torch.Tensor) -> tuple[object, ...]:
        if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
            scale: object = (tensor.q_scale(), tensor.q_zero_point())
        else:
            scale = (
                tensor.q_per_channel_axis(),
                tuple(tensor.q_per_channel_scales().tolist()),
                tuple(tensor.q_per_channel_zero_points().tolist()),
            )
        return (scale, self._dense_bytes(tensor.int_repr()))

    def _dense_bytes(self, tensor: torch.Tensor) -> bytes:
        solid = tensor.resolve_conj().resolve_neg().contiguous().reshape(-1)
        return solid.view(torch.uint8).numpy().tobytes() if solid.numel() else b""

    def _array(self, array: np.ndarray) -> tuple[object, ...]:
        head = (array.dtype.str, repr(array.dtype), array.shape)
        return (*head, self._bytes(array)) if self.seeing else head

    def _bytes(self, array: np.ndarray) -> object:
        if array.dtype.hasobject:
            return self.describe(array.tolist())
        return np.ascontiguousarray(array).tobytes()


def public(loader: torch.utils.data.DataLoader) -> dict[str, Any]:
    """Give the public instance attributes, as ignite and Lightning read them."""
    return {name: value for name, value in vars(loader).items() if not name.startswith("_")}


def vars_of(value: Any) -> dict[str, Any]:
    """Give the instance attributes of a value, none for one that has no room for them."""
    return getattr(value, "__dict__", {})
