"""What a program must have before it can start, through aliases, bases and helpers."""

import torch.utils.data as data
from torch.utils.data import DataLoader as Loader


class Table(data.Dataset):
    def __init__(self, rows, *, folder):
        self.rows, self.folder = rows, folder

    def __getitem__(self, index):
        return path.join(self.folder, self.rows[index])  # finds: AF705


class Longer(Table):
    def __len__(self):
        return len(self.row)  # finds: AF707


class Order(data.Sampler):
    def __init__(self, source):
        self.source = source

    def __iter__(self):
        return iter(range(len(self.source)))


class Stack:
    def __call__(self, samples):
        return torch.stack(samples)  # finds: AF705


def table(rows):
    return Table(rows, folder="a")


def loaders(rows, options):
    dataset = Longer(rows, folder="a")
    yield Loader(table(rows))  # a function's value: not followed
    yield Loader(Table(rows, folder="a"))  # finds: AF701
    yield Loader(Table(rows), sampler=[1])  # finds: AF703
    yield Loader(Longer(rows, "a"))  # finds: AF703
    yield Loader(dataset, sampler=Order())  # finds: AF703
    yield Loader(dataset, collate_fn=Stack(2))  # finds: AF703
    yield Loader(dataset, sampler=Order(dataset), shuffle=True)  # finds: AF704
    yield Loader(dataset, prefetch_factor=2, **options)
    yield Loader(dataset, None, drop_last=True)  # finds: AF704
    yield Loader(dataset, num_workers=-1)  # finds: AF704
    yield Loader(dataset, num_workers=2, prefetch=2)  # finds: AF706
    yield Loader(dataset, 4, batch_size=4)  # finds: AF706
    yield Loader(num_workers=2)  # finds: AF706
