"""What `get_worker_info()` returns is what this torch's own worker has, whatever its version."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import get_worker_info
from torch.utils.data._utils.worker import WorkerInfo

from antifreeze import DataLoader


def frozen_error(info: Any) -> None:
    info.id = 5


def new_attribute(info: Any) -> None:
    info.mine = 5


def deleted(info: Any) -> None:
    del info.seed


def pickled(info: Any) -> Any:
    again = pickle.loads(pickle.dumps(info))
    return type(again) is WorkerInfo, again.id, again.num_workers


def copied(info: Any) -> Any:
    return copy.copy(info).num_workers, copy.deepcopy(info).id


def as_fields(info: Any) -> Any:
    return [field.name for field in dataclasses.fields(info)]


def replaced(info: Any) -> Any:
    return dataclasses.replace(info, id=7).id


def has_a_dict(info: Any) -> Any:
    return sorted(vars(info))


LOOKS: tuple[Callable[[Any], Any], ...] = (
    repr,
    str,
    lambda info: type(info).__name__,
    lambda info: isinstance(info, WorkerInfo),
    lambda info: info == info,
    lambda info: sorted(name for name in dir(info) if not name.startswith("_")),
    frozen_error,
    new_attribute,
    pickled,
    copied,
    as_fields,
    replaced,
    has_a_dict,
    deleted,  # the last: where it can be deleted, it is gone
)


class SamplingProfiler:
    def __len__(self) -> int:
        return 1

    def __repr__(self) -> str:
        return "Looks()"

    def __getitem__(self, index: int) -> list[str]:
        info: Any = get_worker_info()
        seed = str(info.seed)  # another one in each run
        return [_told(look, info).replace(seed, "SEED") for look in LOOKS]


def _told(look: Callable[[Any], Any], info: Any) -> str:
    try:
        return str(look(info))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def first(samples: list[Any]) -> Any:
    return samples[0]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_it_looks_and_behaves_as_torchs(method: str) -> None:
    (torchs,) = TorchLoader(
        SamplingProfiler(),
        num_workers=1,
        collate_fn=first,
        multiprocessing_context=method,
    )
    (ours,) = DataLoader(
        SamplingProfiler(),
        num_workers=1,
        collate_fn=first,
        multiprocessing_context=method,
    )
    assert ours == torchs
