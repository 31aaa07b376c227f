"""Two causes at once: a worker that was killed in the middle of a batch, and one that was stopped.

expects: worker-gone, worker-stopped
"""

import os
import signal
import threading
import time

from torch.utils.data import DataLoader, Dataset, get_worker_info


class Both(Dataset[bytes]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> bytes:
        info = get_worker_info()
        assert info is not None
        if info.id == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        threading.Thread(target=die_while_sending, daemon=True).start()
        return bytes(64 << 20)


def die_while_sending() -> None:
    while not any("pipe_write" in waits_in(tid) for tid in os.listdir("/proc/self/task")):
        time.sleep(0.0001)
    os.kill(os.getpid(), signal.SIGKILL)


def waits_in(tid: str) -> str:
    with open(f"/proc/self/task/{tid}/wchan") as file:
        return file.read()


def loop() -> None:
    for _ in DataLoader(Both(), batch_size=None, num_workers=2):
        pass


trainer = threading.Thread(target=loop)
trainer.start()
print("begins", flush=True)
trainer.join(290)
