"""Scenario 1: each call opens, reads and closes its own file. Nothing is wrong with it."""

import os

from torch.utils.data import DataLoader, Dataset


class Files(Dataset):
    def __init__(self, folder):
        self.folder = folder
        self.names = sorted(os.listdir(folder))

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        with open(os.path.join(self.folder, self.names[index]), "rb") as file:
            return file.read()


if __name__ == "__main__":
    for batch in DataLoader(Files("data"), batch_size=8, num_workers=8):
        print(len(batch))
