"""ignite: an Engine, a DeterministicEngine (it rebuilds the loader), or `idist.auto_dataloader`."""

from __future__ import annotations

import sys
from typing import Any

import torch
from rows import DataLoader, Rows, Step, report

import ignite.distributed as idist  # isort: skip  (after `install`, which `rows` may call)
from ignite.engine import DeterministicEngine, Engine, Events  # isort: skip


def main(kind: str) -> None:
    step = Step()
    model = idist.auto_model(step) if idist.get_world_size() > 1 else step
    optimizer = torch.optim.SGD(step.parameters(), lr=0.01)

    def train(engine: Engine, batch: dict[str, torch.Tensor]) -> float:
        optimizer.zero_grad()
        loss = model(**batch)["loss"]
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    engine = DeterministicEngine(train) if kind == "deterministic" else Engine(train)
    arguments: dict[str, Any] = {"batch_size": 4, "shuffle": True, "num_workers": 2}
    if kind == "auto":
        arguments["batch_size"] *= idist.get_world_size()  # it is shared out
        arguments["num_workers"] *= idist.get_world_size()
        loader = idist.auto_dataloader(Rows(96), **arguments)

        @engine.on(Events.EPOCH_STARTED)
        def _set_epoch() -> None:
            if hasattr(loader.sampler, "set_epoch"):
                loader.sampler.set_epoch(engine.state.epoch)
    else:
        loader = DataLoader(Rows(96), **arguments)
    engine.run(loader, max_epochs=2)
    report(engine.state.dataloader, steps=engine.state.iteration, trained=step.trained)


if __name__ == "__main__":
    if sys.argv[1] == "auto":
        with idist.Parallel(backend="gloo") as parallel:
            parallel.run(lambda local_rank: main("auto"))
    else:
        main(sys.argv[1])
