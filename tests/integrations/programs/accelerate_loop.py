"""accelerate: a loop of one's own over a loader that `prepare` gave back, then a resumed epoch."""

from __future__ import annotations

import sys
from typing import Any

import torch
from rows import WAY, DataLoader, Rows, Step, report

if "options" in sys.argv:
    from antifreeze import DataLoader

from accelerate import Accelerator  # isort: skip  (after `install`, which `rows` may call)

OPTIONS: dict[str, Any] = {"on_error": "replace"} if "options" in sys.argv else {}

if __name__ == "__main__":
    accelerator = Accelerator(cpu=True)
    step = Step()
    optimizer = torch.optim.SGD(step.parameters(), lr=0.01)
    given = DataLoader(Rows(96), batch_size=4, shuffle=True, num_workers=2, **OPTIONS)
    model, optimizer, loader = accelerator.prepare(step, optimizer, given)
    for epoch in range(2):
        loader.set_epoch(epoch)
        for batch in loader:
            optimizer.zero_grad()
            accelerator.backward(model(**batch)["loss"])
            optimizer.step()
    rest = accelerator.skip_first_batches(loader, 10)
    resumed = [batch["index"].tolist() for batch in rest]
    report(
        loader.base_dataloader,
        trained=step.trained,
        resumed=resumed,
        resumed_by=type(getattr(rest, "base_dataloader", rest)).__module__,
        on_error=getattr(loader.base_dataloader, "on_error", None),
        way=WAY,
    )
    accelerator.end_training()
