"""A worker that was not forked asks a thread of its own, which has failed.

expects: thread-gone
"""

import queue
import threading

from torch.utils.data import DataLoader, Dataset


class Asked(Dataset[int]):
    answers: "queue.Queue[int] | None" = None

    def __len__(self) -> int:
        return 1000

    def answer(self, answers: "queue.Queue[int]") -> None:
        for each in range(50):
            answers.put(each)
        raise ValueError("no more")

    def __getitem__(self, index: int) -> int:
        if self.answers is None:
            self.answers = queue.Queue()
            threading.Thread(target=self.answer, args=(self.answers,), daemon=True).start()
        return self.answers.get()


if __name__ == "__main__":
    print("begins", flush=True)
    for _ in DataLoader(Asked(), batch_size=4, num_workers=2, multiprocessing_context="forkserver"):
        pass
