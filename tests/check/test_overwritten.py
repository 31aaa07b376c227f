"""A value that is overwritten before it is used is not believed."""

from __future__ import annotations

import pytest

from antifreeze.doctor.check.checker import check_text

HEAD = """
import os

import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

"""

OVERWRITTEN = {
    "seq": """
def load(dataset, epoch, sampler):
    dist.init_process_group("nccl")
    workers = os.cpu_count()
    workers = 4
    return DataLoader(dataset, sampler=sampler, num_workers=workers)
""",
    "module": """
WORKERS = os.cpu_count()
WORKERS = 4
def load(dataset, epoch, sampler):
    dist.init_process_group("nccl")
    return DataLoader(dataset, sampler=sampler, num_workers=WORKERS)
""",
    "module-aff": """
WORKERS = len(os.sched_getaffinity(0))
WORKERS = 4
def load(dataset, epoch, sampler):
    dist.init_process_group("nccl")
    return DataLoader(dataset, sampler=sampler, num_workers=WORKERS)
""",
    "aug": """
def load(dataset, epoch, sampler):
    dist.init_process_group("nccl")
    workers = len(os.sched_getaffinity(0))
    workers //= 8
    return DataLoader(dataset, sampler=sampler, num_workers=workers)
""",
    "aug-cpu": """
def load(dataset, epoch, sampler):
    dist.init_process_group("nccl")
    workers = os.cpu_count()
    workers //= dist.get_world_size()
    return DataLoader(dataset, sampler=sampler, num_workers=workers)
""",
    "min": """
def load(dataset, epoch, sampler):
    dist.init_process_group("nccl")
    workers = os.cpu_count()
    workers = min(workers, 8)
    return DataLoader(dataset, sampler=sampler, num_workers=workers)
""",
    "self-init": """
class T:
    def __init__(self, dataset, sampler):
        dist.init_process_group("nccl")
        self.workers = os.cpu_count()
        self.workers = 4
        self.loader = DataLoader(dataset, sampler=sampler, num_workers=self.workers)
""",
    "self-init-other": """
class T:
    def __init__(self, dataset, sampler):
        dist.init_process_group("nccl")
        self.workers = os.cpu_count()
        self.workers = 4
    def load(self, dataset, sampler):
        return DataLoader(dataset, sampler=sampler, num_workers=self.workers)
""",
    "self-aug": """
class T:
    def __init__(self, dataset, sampler):
        dist.init_process_group("nccl")
        self.workers = len(os.sched_getaffinity(0))
        self.workers //= 8
    def load(self, dataset, sampler):
        return DataLoader(dataset, sampler=sampler, num_workers=self.workers)
""",
    "param": """
def load(dataset, sampler, workers=os.cpu_count()):
    dist.init_process_group("nccl")
    workers = 4
    return DataLoader(dataset, sampler=sampler, num_workers=workers)
""",
    "dict": """
def load(dataset, sampler):
    dist.init_process_group("nccl")
    options = {"num_workers": os.cpu_count()}
    options["num_workers"] = 4
    return DataLoader(dataset, sampler=sampler, **options)
""",
    "dict-attr": """
def load(dataset, sampler):
    dist.init_process_group("nccl")
    options = dict(num_workers=os.cpu_count())
    options.update(num_workers=4)
    return DataLoader(dataset, sampler=sampler, **options)
""",
    "class-attr": """
class T:
    workers = os.cpu_count()
    workers = 4
    def load(self, dataset, sampler):
        dist.init_process_group("nccl")
        return DataLoader(dataset, sampler=sampler, num_workers=self.workers)
""",
    "tuple": """
def load(dataset, sampler):
    dist.init_process_group("nccl")
    workers, n = os.cpu_count(), 3
    workers, n = 4, 3
    return DataLoader(dataset, sampler=sampler, num_workers=workers)
""",
    "with-as for": """
def load(dataset, sampler):
    dist.init_process_group("nccl")
    workers = os.cpu_count()
    for workers in (2, 4):
        yield DataLoader(dataset, sampler=sampler, num_workers=workers)
""",
    "sampler-none 602": """
def load(dataset):
    dist.init_process_group("nccl")
    sampler = DistributedSampler(dataset)
    sampler = None
    return DataLoader(dataset, sampler=sampler, shuffle=True, num_workers=4)
""",
    "sampler-none 601": """
def load(dataset):
    dist.init_process_group("nccl")
    sampler = DistributedSampler(dataset)
    sampler = None
    loader = DataLoader(dataset, sampler=sampler, num_workers=4)
    for epoch in range(3):
        for b in loader: print(b)
""",
    "del": """
def load(dataset, sampler):
    dist.init_process_group("nccl")
    workers = os.cpu_count()
    try:
        workers = int(os.environ["W"])
    except KeyError:
        workers = 2
    return DataLoader(dataset, sampler=sampler, num_workers=workers)
""",
}


@pytest.mark.parametrize("name", OVERWRITTEN)
def test_what_is_overwritten_is_not_believed(name: str) -> None:
    result = check_text(HEAD + OVERWRITTEN[name])
    assert [(each.code, each.words) for each in result.found] == []
    assert not result.failures


STAYS = {
    "used before": """
def load(dataset, sampler):
    dist.init_process_group("nccl")
    workers = os.cpu_count()
    loader = DataLoader(dataset, sampler=sampler, num_workers=workers)
    workers = 4
    return loader, workers
""",
    "used before, an attribute": """
class Training:
    def __init__(self, dataset, sampler):
        dist.init_process_group("nccl")
        self.workers = os.cpu_count()
        self.loader = DataLoader(dataset, sampler=sampler, num_workers=self.workers)
        self.workers = 4
""",
    "in one branch": """
def load(dataset, sampler, debug):
    dist.init_process_group("nccl")
    workers = os.cpu_count()
    if debug:
        workers = 0
    return DataLoader(dataset, sampler=sampler, num_workers=workers)
""",
    "in the branch that leaves": """
def load(dataset, sampler, debug):
    dist.init_process_group("nccl")
    workers = os.cpu_count()
    if debug:
        workers = 0
        return DataLoader(dataset, sampler=sampler, num_workers=workers)
    return DataLoader(dataset, sampler=sampler, num_workers=workers)
""",
    "the next turn of a loop": """
def load(dataset, sampler):
    dist.init_process_group("nccl")
    workers = 2
    for _ in range(3):
        yield DataLoader(dataset, sampler=sampler, num_workers=workers)
        workers = os.cpu_count()
    workers = 1
""",
    "a loop with a way around it": """
def load(dataset, sampler, odd):
    dist.init_process_group("nccl")
    workers = 2
    for turn in range(3):
        yield DataLoader(dataset, sampler=sampler, num_workers=workers)
        workers = os.cpu_count()
        if odd(turn):
            continue
        workers = 2
""",
    "a handler that sees it": """
def load(dataset, sampler, tune):
    dist.init_process_group("nccl")
    workers = 2
    try:
        workers = os.cpu_count()
        tune(workers)
        workers = 2
    except RuntimeError:
        return DataLoader(dataset, sampler=sampler, num_workers=workers)
""",
    "called before it is overwritten": """
WORKERS = os.cpu_count()


def load(dataset, sampler):
    dist.init_process_group("nccl")
    return DataLoader(dataset, sampler=sampler, num_workers=WORKERS)


loader = load(range(3), None)
WORKERS = 4
""",
    "one more": """
def load(dataset, sampler):
    dist.init_process_group("nccl")
    workers = os.cpu_count()
    workers += 1
    return DataLoader(dataset, sampler=sampler, num_workers=workers)
""",
}


@pytest.mark.parametrize("name", STAYS)
def test_what_may_still_be_there_is_believed(name: str) -> None:
    found = {each.code for each in check_text(HEAD + STAYS[name]).found}
    assert "AF502" in found, found


HANDLE = """
import h5py
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, path):
        self.file = h5py.File(path)
        self.count = len(self.file["x"])
        {then}

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.file[index]


def main():
    for batch in DataLoader(Rows("rows"), num_workers=2):
        print(batch)


if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize(("then", "codes"), [("self.file = [1, 2]", []), ("pass", ["AF201"])])
def test_an_attribute_that_the_constructor_overwrites_is_seen_by_nobody(
    then: str, codes: list[str]
) -> None:
    found = check_text(HANDLE.format(then=then)).found
    assert [each.code for each in found] == codes
