"""The program waits for its process to end, which cannot: it still has something to send.

expects: exit-joins-stuck-worker
"""

import multiprocessing

from torch.utils.data import DataLoader, Dataset, TensorDataset


def count(results: "multiprocessing.Queue[bytes]", dataset: Dataset[int]) -> None:
    for _ in DataLoader(dataset, batch_size=4, num_workers=1):
        results.put(bytes(1 << 20))


if __name__ == "__main__":
    import torch

    results: "multiprocessing.Queue[bytes]" = multiprocessing.Queue()
    dataset = TensorDataset(torch.arange(16))
    child = multiprocessing.Process(target=count, args=(results, dataset))
    child.start()
    print("begins", flush=True)
    child.join()
