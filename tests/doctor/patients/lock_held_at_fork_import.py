"""The import lock of a module that a thread of the main process imports while it forks.

expects: lock-held-at-fork
"""

import sys
import threading
import time
from pathlib import Path

from torch.utils.data import DataLoader, Dataset

(Path(sys.argv[1]) / "large_library.py").write_text("import time\ntime.sleep(300)\n")
sys.path.insert(0, sys.argv[1])


def load() -> None:
    import large_library  # noqa: F401


class Lazy(Dataset[int]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        load()
        return index


threading.Thread(target=load, daemon=True).start()
time.sleep(0.5)
print("begins", flush=True)
for _ in DataLoader(Lazy(), batch_size=4, num_workers=2):
    pass
