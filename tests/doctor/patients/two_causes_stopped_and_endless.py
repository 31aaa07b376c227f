"""One worker is stopped by a signal, the other computes without an end.

expects: worker-stopped endless-sample
"""

import os
import signal

from torch.utils.data import DataLoader, Dataset, get_worker_info


class Rows(Dataset[int]):
    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> int:
        worker = get_worker_info()
        if index >= 8 and worker is not None:
            if worker.id == 0:
                os.kill(os.getpid(), signal.SIGSTOP)
            while index:
                index += 1
        return index


print("begins", flush=True)
for _ in DataLoader(Rows(), batch_size=4, num_workers=2):
    pass
