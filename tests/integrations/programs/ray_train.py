"""Ray Train: two workers of Ray's, each with a loader of what `prepare_data_loader` gives."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # what Ray runs elsewhere begins with this path

import ray
import ray.train
import ray.train.torch
from ray.train import RunConfig, ScalingConfig

HERE = str(Path(__file__).parent)


def train() -> None:
    import sys

    sys.path.insert(0, HERE)
    os.environ["RANK"] = str(ray.train.get_context().get_world_rank())
    import torch
    from rows import WAY, DataLoader, Rows, Step, report  # it installs, if that is the way
    from torch.utils.data import DistributedSampler

    step = Step()
    model = ray.train.torch.prepare_model(step)
    optimizer = torch.optim.SGD(step.parameters(), lr=0.01)
    rows = Rows(96)
    # One that has its sampler already is not built again.
    how = {"sampler": DistributedSampler(rows)} if WAY == "own" else {"shuffle": True}
    given = DataLoader(rows, batch_size=4, num_workers=2, **how)
    loader = ray.train.torch.prepare_data_loader(given)
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)
        for batch in loader:
            optimizer.zero_grad()
            model(**batch)["loss"].backward()
            optimizer.step()
    report(getattr(loader, "_dataloader", loader), trained=step.trained)


if __name__ == "__main__":
    names = ("WAY", "FOLDER", "PYTHONPATH", "OMP_NUM_THREADS")
    environment = {name: os.environ[name] for name in names}
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        runtime_env={"env_vars": environment},
        _temp_dir=os.environ["RAY_FOLDER"],
    )
    trainer = ray.train.torch.TorchTrainer(
        train,
        scaling_config=ScalingConfig(num_workers=2, use_gpu=False),
        run_config=RunConfig(storage_path=os.environ["FOLDER"], name="run"),
        torch_config=ray.train.torch.TorchConfig(backend="gloo"),
    )
    trainer.fit()
    ray.shutdown()
