"""Nothing: workers that are started anew, by `spawn`, take seconds for it, epoch after epoch.

expects: nothing
"""

import time

from torch.utils.data import DataLoader

if __name__ == "__main__":
    print("begins", flush=True)
    give_up = time.monotonic() + 300
    while time.monotonic() < give_up:
        for _ in DataLoader(range(40), num_workers=2, multiprocessing_context="spawn"):
            pass
