"""Loaders and datasets that a function gives back, alone, in a tuple, or as a method."""

from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, rows):
        self.rows = rows
        self.seen = []
        self.scale = 1

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        self.seen.append(index)
        return self.rows[index] * self.scale


def build(rows, workers):
    dataset = Rows(rows)
    loader = DataLoader(dataset, batch_size=8, num_workers=workers, persistent_workers=True)
    return loader, dataset


def make_loader(rows):
    return DataLoader(Rows(rows), batch_size=8, num_workers=2)


class Trainer:
    def __init__(self, rows):
        self.rows = rows

    def loader(self):
        return make_loader(self.rows)

    def run(self):
        kept = []
        for batch in self.loader():
            kept.append(batch)  # finds: AF206
        return kept


def train(rows, workers):
    batches, dataset = build(rows, workers)
    for epoch in range(10):
        dataset.scale = epoch  # finds: AF209
        for batch in batches:
            print(batch)
    print(dataset.seen)  # finds: AF208


def test(rows):
    loader = make_loader(rows)
    targets = []
    for x, y in loader:
        targets.append(y)  # finds: AF206
        x.sum()
    return targets
