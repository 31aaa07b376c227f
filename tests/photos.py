"""A dataset for programs that tests write and run: ten numbers, of which one cannot be loaded."""

PHOTOS = """
from torch.utils.data import DataLoader, Dataset
class Photos(Dataset):
    def __len__(self):
        return 10
    def __getitem__(self, index):
        if index == 3:
            raise OSError("truncated")
        return index
"""
RAISED_AT = 8  # the line of it, if a program begins with it
