"""ultralytics' InfiniteDataLoader, made by its `build_dataloader`: workers that stay for ever."""

from __future__ import annotations

from typing import Any

import torch
import vision  # noqa: F401  (ultralytics imports torchvision)
from rows import Rows, report

from ultralytics.data.build import build_dataloader  # isort: skip  (after `install`)


class Pictures(Rows):
    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index)


if __name__ == "__main__":
    loader = build_dataloader(Pictures(96), batch=4, workers=2, shuffle=True)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    trained: list[list[int]] = []
    for epoch in range(3):
        if epoch == 2:
            loader.reset()  # as its trainer does to change the augmentation
        for batch in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(batch["x"]), batch["labels"][:, None]).backward()
            optimizer.step()
            trained.append(batch["index"].tolist())
    iterator = loader.iterator
    workers = [each.is_alive() for each in iterator._workers]
    report(loader, trained=trained, iterator=type(iterator).__module__, workers=workers)
    del iterator
    loader.__del__()  # it ends its workers one by one, then all: nobody should mind
