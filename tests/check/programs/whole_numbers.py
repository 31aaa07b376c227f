"""Numbers of workers that are not whole numbers, and those that only look so."""

import functools
import os
from os import environ

from torch.utils.data import DataLoader

MANY = 4.0
OPTIONS = {"num_workers": "8"}  # finds: AF708
make = functools.partial(DataLoader, num_workers="2")  # finds: AF708


class Own(DataLoader):
    def __init__(self, dataset, num_workers="4"):
        super().__init__(dataset, num_workers=int(num_workers))


class Passes(DataLoader):
    def __init__(self, dataset):
        super().__init__(dataset, num_workers="4")  # finds: AF708


def loaders(dataset, args, gpus, fast):
    yield DataLoader(dataset, num_workers=MANY)  # finds: AF708
    yield DataLoader(dataset, num_workers=environ["WORKERS"])  # finds: AF708
    yield DataLoader(dataset, num_workers=args.workers / gpus)  # finds: AF708
    yield DataLoader(dataset, 4, False, None, None, "3")  # finds: AF708
    yield DataLoader(dataset, num_workers=True)
    yield DataLoader(dataset, num_workers=args.workers)
    yield DataLoader(dataset, num_workers=args.workers // gpus)
    yield DataLoader(dataset, num_workers=int(args.workers / gpus))
    yield DataLoader(dataset, num_workers=int(os.getenv("WORKERS", "4")))
    yield DataLoader(dataset, num_workers=4 if fast else 2)
    yield DataLoader(dataset, num_workers=2, prefetch_factor=None)
    yield Own(dataset, num_workers="4")
    yield Own(dataset)
    yield DataLoader(dataset, **OPTIONS)
    yield make(dataset)
