"""Loaders rebuilt from their attributes, subclassed, copied and pickled."""

import copy
import gc
import inspect
import pickle
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Generic

import pytest
import torch
from torch.utils.data import DistributedSampler

from .observe import (
    LoaderClass,
    public,
    wait_until,
)
from .programs import MapRows, as_list

ROWS = MapRows(10)


# --- rebuilt from its attributes ---------------------------------------------------------------


def test_a_loader_can_be_rebuilt_from_all_its_public_attributes(
    loader_class: LoaderClass,
) -> None:
    # As ignite does it: everything public goes back in, so one attribute more is a TypeError.
    loader = loader_class(ROWS, batch_size=2, num_workers=1, collate_fn=as_list)
    skipped = {"batch_size", "sampler", "drop_last", "batch_sampler", "dataset_kind"}
    arguments = {name: value for name, value in public(loader).items() if name not in skipped}
    again = type(loader)(**arguments, batch_sampler=[[1], [5, 6]])
    assert list(again) == [[1], [5, 6]]


def test_a_loader_can_be_rebuilt_with_another_sampler(loader_class: LoaderClass) -> None:
    # As Lightning does it: public attributes that are parameters and differ from the default.
    loader = loader_class(
        ROWS, batch_size=2, num_workers=1, multiprocessing_context="fork", collate_fn=as_list
    )
    parameters = inspect.signature(type(loader).__init__).parameters
    arguments = {
        name: value
        for name, value in public(loader).items()
        if name in parameters and value is not parameters[name].default
    }
    required = [
        each.name
        for each in parameters.values()
        if each.default is inspect.Parameter.empty and each.name != "self"
    ]
    assert set(required) <= set(arguments)
    arguments["multiprocessing_context"] = loader.multiprocessing_context
    sampler = DistributedSampler(ROWS, num_replicas=2, rank=1, shuffle=False)
    arguments.update(shuffle=False, sampler=sampler, batch_sampler=None)
    again = type(loader)(**arguments)
    assert list(again) == [[1, 3], [5, 7], [9]]
    assert again.multiprocessing_context is loader.multiprocessing_context


def test_a_shallow_copy_of_the_attributes_iterates_the_original(loader_class: LoaderClass) -> None:
    # As Fabric's wrapper does it.
    loader = loader_class(ROWS, batch_size=5, collate_fn=as_list)

    class Wrapper:
        def __init__(self) -> None:
            self.__dict__.update(loader.__dict__)

        def __iter__(self) -> Iterator[Any]:
            yield from iter(loader)

    assert list(Wrapper()) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


# --- subclasses --------------------------------------------------------------------------------


def test_ours_is_a_real_subclass_of_torchs(ours: LoaderClass) -> None:
    assert issubclass(ours, torch.utils.data.DataLoader)
    assert isinstance(ours(ROWS), torch.utils.data.DataLoader)
    assert ours.__name__ == "DataLoader"


def test_the_class_can_be_subscripted(loader_class: LoaderClass) -> None:
    class Typed(loader_class[int]):
        pass

    assert list(Typed(MapRows(3), batch_size=3, collate_fn=as_list)) == [[0, 1, 2]]
    assert loader_class[int](MapRows(1), batch_size=None).dataset.length == 1
    assert issubclass(loader_class, Generic)


class Endless:
    """A sampler that begins again whenever the one inside it ends."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __len__(self) -> int:
        return len(self.inner)

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield from self.inner


@pytest.mark.parametrize("workers", [0, 2])
def test_a_subclass_may_swap_its_batch_sampler_for_an_endless_one(
    workers: int, loader_class: LoaderClass, no_new_children: Callable[[], None]
) -> None:
    # The pattern of timm's loader for many epochs: unfreeze, swap, freeze, keep one iterator.
    class ManyEpochs(loader_class):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._DataLoader__initialized = False
            self.batch_sampler = Endless(self.batch_sampler)
            self._DataLoader__initialized = True
            self.source = super().__iter__()

        def __len__(self) -> int:
            return len(self.batch_sampler.inner)

        def __iter__(self) -> Iterator[Any]:
            for _ in range(len(self)):
                yield next(self.source)

    loader = ManyEpochs(MapRows(5), batch_size=2, num_workers=workers, collate_fn=as_list)
    for _ in range(3):
        assert list(loader) == [[0, 1], [2, 3], [4]]
    del loader
    no_new_children()


def forever(loader_class: LoaderClass, workers: int) -> Any:
    """Make an endless loader by the pattern of ultralytics: past the frozen attribute, a reset."""

    class Forever(loader_class):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            object.__setattr__(self, "batch_sampler", Endless(self.batch_sampler))
            self.source = super().__iter__()

        def __len__(self) -> int:
            return len(self.batch_sampler.inner)

        def __iter__(self) -> Iterator[Any]:
            for _ in range(len(self)):
                yield next(self.source)

        def reset(self) -> None:
            self.source = self._get_iterator()

    return Forever(MapRows(5), batch_size=2, num_workers=workers, collate_fn=as_list)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_subclass_may_hold_one_endless_iterator_and_reset_it(
    workers: int, loader_class: LoaderClass, no_new_children: Callable[[], None]
) -> None:
    loader = forever(loader_class, workers)
    for _ in range(2):
        assert list(loader) == [[0, 1], [2, 3], [4]]
    loader.reset()
    assert list(loader) == [[0, 1], [2, 3], [4]]
    assert len(getattr(loader.source, "_workers", [])) == workers
    if hasattr(loader.source, "_workers"):
        loader.source._shutdown_workers()
    del loader
    no_new_children()


def test_a_subclass_may_terminate_its_workers_by_hand(
    ours: LoaderClass, no_new_children: Callable[[], None]
) -> None:
    # Ours only: a torch worker may be terminated while it holds a lock of the shutdown; a hang.
    loader = forever(ours, 2)
    assert list(loader) == [[0, 1], [2, 3], [4]]
    for worker in loader.source._workers:
        if worker.is_alive():
            worker.terminate()
    loader.source._shutdown_workers()
    no_new_children()


def test_a_subclass_may_count_what_passes_through_its_iterator(loader_class: LoaderClass) -> None:
    class Counting(loader_class):
        passed = 0

        def __iter__(self) -> Iterator[Any]:
            for batch in super().__iter__():
                type(self).passed += 1
                yield batch

    assert len(list(Counting(ROWS, batch_size=4))) == 3
    assert Counting.passed == 3


# --- copies ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
@pytest.mark.parametrize(
    "arguments",
    [{"batch_size": 4}, {"batch_size": 4, "num_workers": 1, "generator": torch.Generator()}],
    ids=["inline", "workers"],
)
def test_a_loader_can_be_copied_and_pickled(
    copied: Callable[[Any], Any], arguments: dict[str, Any], loader_class: LoaderClass
) -> None:
    loader = loader_class(ROWS, collate_fn=as_list, **arguments)
    again = copied(loader)
    assert type(again) is type(loader)
    assert list(again) == list(loader)
    with pytest.raises(ValueError, match="batch_size attribute should not be set"):
        again.batch_size = 2


@pytest.mark.parametrize("workers", [0, 1])
def test_an_iterator_cannot_be_pickled(workers: int, loader_class: LoaderClass) -> None:
    iterator = iter(loader_class(ROWS, num_workers=workers))
    with pytest.raises(NotImplementedError, match="cannot be pickled"):
        pickle.dumps(iterator)


def test_a_loader_whose_workers_are_alive_cannot_be_pickled(
    loader_class: LoaderClass, no_new_children: Callable[[], None]
) -> None:
    loader = loader_class(ROWS, num_workers=1, persistent_workers=True)
    iterator = iter(loader)
    assert loader._iterator is iterator
    with pytest.raises(NotImplementedError, match="cannot be pickled"):
        pickle.dumps(loader)
    del iterator, loader
    no_new_children()


def test_a_loader_is_freed_without_the_collector(
    ours: LoaderClass, no_new_children: Callable[[], None]
) -> None:
    loader = ours(ROWS, num_workers=1)
    iterator = iter(loader)
    next(iterator)
    tombs = [weakref.ref(loader), weakref.ref(iterator)]
    gc.disable()
    try:
        del loader, iterator
        assert wait_until(lambda: not any(tomb() for tomb in tombs), within_s=10)
    finally:
        gc.enable()
    no_new_children()
