"""Ray Train: two workers of Ray's, each with a loader that `prepare_data_loader` made again."""

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
    from rows import DataLoader, Rows, Step, report  # it installs, if that is the way

    step = Step()
    model = ray.train.torch.prepare_model(step)
    optimizer = torch.optim.SGD(step.parameters(), lr=0.01)
    given = DataLoader(Rows(96), batch_size=4, shuffle=True, num_workers=2)
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
