"""Every private name of torch that this package uses, looked up and checked once, at import.

1. All other modules import these names from here. `missing()` lists what our loader needs and this
   torch does not have, or has in another form: then torch's own loader does the work.
2. Every name is always defined here, so that all our modules can be imported: one that is missing
   has a stand-in, which is never called.
3. A name that only some loaders need (DataPipes, pinned memory) is listed for their `Purpose`; they
   alone fall back. What only rare tensors need has another way, which is said where it is used.
4. Attributes that torch's classes set on their instances are looked for in the code of the classes:
   to make an instance would run what other libraries have put around torch's constructors.
"""

from __future__ import annotations

import dis
import enum
import functools
import importlib
import inspect
import itertools
import re
from collections.abc import Callable, Iterable
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data.dataloader import DataLoader as _TorchLoader

OLDEST = (2, 6)  # the first torch with `in_order`, which our class passes on
NAMED = 3  # missing names that a notice lists; a torch that was taken apart misses dozens


class Purpose(enum.Enum):
    """What a name is needed for."""

    EVERY_LOADER = "every loader"
    DATA_PIPES = "DataPipes"
    PINNING = "pinned memory"


# Attributes of torch's loader that ours reads, overrides or leaves to torch's methods.
LOADER_ATTRIBUTES = (
    "_IterableDataset_len_called",
    "_auto_collation",
    "_dataset_kind",
    "_get_iterator",
    "_index_sampler",
    "_iterator",
)
# Attributes of torch's iterators that ours, which derive from them, read or override.
ITERATOR_ATTRIBUTES = (
    "_IterableDataset_len_called",
    "_auto_collation",
    "_base_seed",
    "_collate_fn",
    "_dataset",
    "_dataset_kind",
    "_drop_last",
    "_index_sampler",
    "_next_data",
    "_num_workers",
    "_num_yielded",
    "_persistent_workers",
    "_pg",
    "_pin_memory",
    "_pin_memory_device",
    "_profile_name",
    "_rank",
    "_reset",
    "_sampler_iter",
    "_shared_seed",
    "_world_size",
)

_ABSENT: Any = object()
_lacking: dict[Purpose, list[str]] = {purpose: [] for purpose in Purpose}


# ---- how names are looked up ---------------------------------------------------------------------


def _module(name: str) -> ModuleType:
    """Return a module of torch; an empty one in its place if it is not there."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return ModuleType(name)


def _find(
    home: ModuleType,
    name: str,
    stand_in: Any,
    purpose: Purpose = Purpose.EVERY_LOADER,
    fits: Callable[[Any], bool] = lambda value: True,
) -> Any:
    """Return what a module of torch has by that name, if it is as we know it; else the stand-in,
    and keep in mind that it is missing."""
    value = getattr(home, name, _ABSENT)
    try:
        if value is not _ABSENT and fits(value):
            return value
    except Exception:  # it is of another kind by now
        pass
    changed = "" if value is _ABSENT else " as it was"
    _lacking[purpose].append(f"{home.__name__}.{name}{changed}")
    return stand_in


def _takes(*positional: str, **named: Any) -> Callable[[Any], bool]:
    """Return a check that a function can be called with these arguments."""

    def fits(function: Any) -> bool:
        try:
            inspect.signature(function).bind(*positional, **named)
        except TypeError:
            return False
        except ValueError:  # of a function in C, which has no signature to look at
            return True
        return True

    return fits


def _names_used_by(function: Any) -> set[str]:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return _names_in(code) if isinstance(code, CodeType) else set()


def _names_in(code: CodeType) -> set[str]:
    inner = (_names_in(each) for each in code.co_consts if isinstance(each, CodeType))
    return set(code.co_names).union(*inner)


def _attributes_of(cls: type) -> set[str]:
    """Return the names of attributes that a class has, or that its methods use."""
    found: set[str] = set()
    for base in cls.__mro__:
        for name, value in vars(base).items():
            found.add(name)
            found |= _names_used_by(getattr(value, "fget", value))  # of a property
    return found


def _check_attributes(cls: type, needed: Iterable[str], trial: Callable[[], Any]) -> None:
    absent = set(needed) - _attributes_of(cls)
    if not absent:
        return
    # Its methods may be hidden behind those of another library: an instance has the last word.
    try:
        made = trial()
    except Exception:  # then it is another class than the one we know
        made = None
    for name in sorted(absent):
        if not hasattr(made, name):
            _lacking[Purpose.EVERY_LOADER].append(f"{cls.__name__}.{name}")


def _trial_loader() -> Any:
    return _TorchLoader([0], generator=torch.Generator())  # type: ignore[arg-type]


class _StandIn:
    """In place of a class that this torch does not have: nothing is an instance of it."""


# ---- the loader ----------------------------------------------------------------------------------

_engine = _module("torch.utils.data.dataloader")
_worker = _module("torch.utils.data._utils.worker")

if TYPE_CHECKING:
    from torch.utils.data import dataloader as _dataloader

    BaseIterator = _dataloader._BaseDataLoaderIter
    DatasetKind: Any = _dataloader._DatasetKind

    class WorkerInfo:
        id: int
        num_workers: int
        seed: int
        dataset: Any

        def __init__(self, **fields: Any) -> None: ...
else:
    BaseIterator = _find(_engine, "_BaseDataLoaderIter", _StandIn, fits=_takes("loader"))
    DatasetKind = _find(_engine, "_DatasetKind", _StandIn, fits=lambda it: hasattr(it, "Iterable"))
    WorkerInfo = _find(
        _worker, "WorkerInfo", _StandIn, fits=_takes(id=0, num_workers=1, seed=0, dataset=())
    )
    _check_attributes(_TorchLoader, LOADER_ATTRIBUTES, _trial_loader)
    if BaseIterator is not _StandIn:
        _check_attributes(BaseIterator, ITERATOR_ATTRIBUTES, lambda: BaseIterator(_trial_loader()))

# None where it is missing: `install()` cannot say then where torch's own workers start.
MultiProcessingIterator: Any = getattr(_engine, "_MultiProcessingDataLoaderIter", None)
default_collate_fn_map: dict[Any, Callable[..., Any]] = _find(
    _module("torch.utils.data._utils.collate"),
    "default_collate_fn_map",
    {},
    fits=lambda functions: torch.Tensor in functions,
)
pin_memory: Callable[[Any, str | None], Any] = _find(
    _module("torch.utils.data._utils.pin_memory"),
    "pin_memory",
    None,
    Purpose.PINNING,
    _takes("data", "device"),
)
# `torch.utils.data.get_worker_info()` reads this name; there is no public way to set it.
_find(_worker, "_worker_info", None)
_find(
    _worker,
    "get_worker_info",
    None,
    fits=lambda function: "_worker_info" in _names_used_by(function),
)


def worker_info() -> Any:
    return _worker._worker_info


def set_worker_info(info: Any) -> None:
    _worker._worker_info = info  # type: ignore[attr-defined]


@functools.cache
def releases_dataset() -> bool:
    """Whether torch's own workers release their dataset before they leave, as they do since 2.14:
    the code that forgets the worker's info is there."""
    return any(
        (load.opname, load.argval) == ("LOAD_CONST", None)
        and (store.opname, store.argval) == ("STORE_GLOBAL", "_worker_info")
        for function in vars(_worker).values()
        if isinstance(function, FunctionType)
        for load, store in itertools.pairwise(dis.get_instructions(function))
    )


def is_stream(loader: Any) -> bool:
    """Whether the dataset of a loader is an iterable one, as torch's constructor has found."""
    if DatasetKind is _StandIn or not hasattr(loader, "_dataset_kind"):
        return isinstance(loader.dataset, torch.utils.data.IterableDataset)
    return bool(loader._dataset_kind == DatasetKind.Iterable)


# ---- DataPipes: public, but deprecated, and so they may go ---------------------------------------

if TYPE_CHECKING:
    from torch.utils.data import graph_settings as _settings

    IterDataPipe = torch.utils.data.IterDataPipe
    MapDataPipe = torch.utils.data.MapDataPipe
    apply_random_seed = _settings.apply_random_seed
    apply_sharding = _settings.apply_sharding
else:
    IterDataPipe = getattr(torch.utils.data, "IterDataPipe", _StandIn)
    MapDataPipe = getattr(torch.utils.data, "MapDataPipe", _StandIn)
    _settings = _module("torch.utils.data.graph_settings")
    apply_sharding = _find(
        _settings, "apply_sharding", None, Purpose.DATA_PIPES, _takes("pipe", "size", "rank")
    )
    apply_random_seed = _find(
        _settings, "apply_random_seed", None, Purpose.DATA_PIPES, _takes("pipe", "rng")
    )

share_dist_seed: Callable[[Any, Any], Any] = _find(
    _engine, "_share_dist_seed", None, Purpose.DATA_PIPES, _takes("generator", "group")
)
sharding_worker_init_fn: Callable[..., None] = _find(
    _engine,
    "_sharding_worker_init_fn",
    None,
    Purpose.DATA_PIPES,
    _takes("init_fn", "world_size", "rank", "worker"),
)


def is_pipe(dataset: Any) -> bool:
    return isinstance(dataset, IterDataPipe | MapDataPipe)


# ---- tensors, storages and generators: what is missing has another way -------------------------

_profiler = getattr(getattr(torch, "_C", None), "_autograd", None)
# Without it every batch is recorded, as torch does: 10 us each.
profiler_enabled: Callable[[], bool] = getattr(_profiler, "_profiler_enabled", lambda: True)

# None, where they are missing: such tensors travel as torch pickles them.
make_per_tensor_quantized: Any = getattr(torch, "_make_per_tensor_quantized_tensor", None)
make_per_channel_quantized: Any = getattr(torch, "_make_per_channel_quantized_tensor", None)
nested_view_from_buffer: Any = getattr(torch, "_nested_view_from_buffer", None)

_sharing = _module("torch.multiprocessing.reductions")
# None, where they are missing: shared memory cannot be sent to a clean process.
share_tensor: Any = getattr(_sharing, "reduce_tensor", None)
share_storage: Any = getattr(_sharing, "reduce_storage", None)

_NESTED_PARTS = (
    "_nested_tensor_size",
    "_nested_tensor_strides",
    "_nested_tensor_storage_offsets",
)


def nested_layout(tensor: Any) -> tuple[torch.Tensor, ...] | None:
    """Return the sizes, strides and offsets of a nested tensor; None if this torch hides them."""
    if nested_view_from_buffer is None:
        return None
    methods = [getattr(tensor, name, None) for name in _NESTED_PARTS]
    return None if None in methods else tuple(method() for method in methods if method)


def ragged_dimension(tensor: Any) -> int | None:
    found: int | None = getattr(tensor, "_ragged_idx", None)
    return found


def version_of(tensor: torch.Tensor) -> int:
    """Return how often a tensor was written to; always 0 if this torch does not count."""
    found: int = getattr(tensor, "_version", 0)
    return found


def untyped(storage: Any) -> torch.UntypedStorage:
    found: torch.UntypedStorage | None = getattr(storage, "_untyped_storage", None)
    return storage.untyped() if found is None else found  # the public name warns


def address_of(generator: torch.Generator) -> int | None:
    """Return where a generator lies in memory; None if this torch does not tell."""
    found: int | None = getattr(generator, "_cdata", None)
    return found


# ---- what came of it -----------------------------------------------------------------------------


def missing(purpose: Purpose = Purpose.EVERY_LOADER) -> tuple[str, ...]:
    """Name what this torch lacks of what a purpose needs."""
    return tuple(_lacking[purpose])


@functools.cache
def too_old() -> bool:
    found = re.match(r"(\d+)\.(\d+)", str(torch.__version__))
    return found is not None and (int(found[1]), int(found[2])) < OLDEST


def shown(names: tuple[str, ...]) -> str:
    """Join names for a notice."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def fault(purpose: Purpose = Purpose.EVERY_LOADER) -> str:
    """Return in one clause why our loader cannot be used with this torch, or nothing."""
    if purpose is Purpose.EVERY_LOADER and too_old():
        oldest = ".".join(map(str, OLDEST))
        return f"antifreeze needs torch {oldest} or newer; this is {torch.__version__}"
    if names := missing(purpose):
        return f"antifreeze needs {shown(names)}, which torch {torch.__version__} does not have"
    return ""


LACKS = bool(fault())
LACKS_FOR_SOME = any(fault(purpose) for purpose in Purpose)
