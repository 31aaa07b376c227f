"""Plain DistributedDataParallel on gloo: two epochs, each rank with its share of the rows."""

from __future__ import annotations

import torch
import torch.distributed as dist
from rows import DataLoader, Rows, Step, report
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

if __name__ == "__main__":
    dist.init_process_group("gloo")
    rows = Rows(96)
    sampler: DistributedSampler[int] = DistributedSampler(rows, shuffle=True)
    loader = DataLoader(rows, batch_size=4, sampler=sampler, num_workers=2)
    step = Step()
    model = DistributedDataParallel(step)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for batch in loader:
            optimizer.zero_grad()
            model(**batch)["loss"].backward()
            optimizer.step()
    report(loader, trained=step.trained, weight=step.linear.weight.tolist())
    dist.destroy_process_group()
