"""A module that starts a thread and waits for it while it is being imported, in spawned workers.

expects: deadlock-of-threads
"""

import sys
from pathlib import Path

from torch.utils.data import DataLoader, Dataset

MODULE = """
import threading

def load():
    from settings_of_mine import VALUE
    return VALUE

reader = threading.Thread(target=load)
reader.start()
reader.join()
VALUE = 1
"""


class Lazy(Dataset[int]):
    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        sys.path.insert(0, self.folder)
        import settings_of_mine

        return int(settings_of_mine.VALUE)


if __name__ == "__main__":
    (Path(sys.argv[1]) / "settings_of_mine.py").write_text(MODULE)
    loader = DataLoader(Lazy(sys.argv[1]), num_workers=1, multiprocessing_context="spawn")
    batches = iter(loader)
    print("begins", flush=True)
    list(batches)
