"""Lightning's Trainer: `fit`, `validate` or `predict`, on one process or two."""

from __future__ import annotations

import sys
from typing import Any

import torch
from rows import FOLDER, WAY, DataLoader, Rows, Step, report

import lightning  # isort: skip  (after `install`, which `rows` may call)

LENGTH = 96
OPTIONS: dict[str, Any] = {"on_error": "replace"} if WAY == "own" else {}


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.step = Step()
        self.tried: list[list[int]] = []

    def training_step(self, batch: dict[str, torch.Tensor], place: int) -> torch.Tensor:
        return self.step(**batch)["loss"]

    def validation_step(self, batch: dict[str, torch.Tensor], place: int) -> None:
        self.tried.append(batch["index"].tolist())

    def predict_step(self, batch: dict[str, torch.Tensor], place: int) -> torch.Tensor:
        return batch["index"]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


class WithHooks(Module):
    """One whose loaders are made by hooks: there Lightning records how they are made."""

    def train_dataloader(self) -> Any:
        return a_loader(shuffle=True)

    def val_dataloader(self) -> Any:
        return a_loader("val")


class Wanted(lightning.pytorch.callbacks.BasePredictionWriter):
    """Keeps the rows that Lightning says it has predicted; it notes them as they are sampled."""

    def __init__(self) -> None:
        super().__init__("batch")
        self.rows: list[list[int]] = []

    def write_on_batch_end(
        self, trainer: Any, module: Any, prediction: Any, indices: Any, *others: Any
    ) -> None:
        assert list(indices) == prediction.tolist(), (indices, prediction)
        self.rows.append(list(indices))


def a_loader(name: str = "rows", shuffle: bool = False) -> Any:
    return DataLoader(Rows(LENGTH, name), batch_size=4, shuffle=shuffle, num_workers=2, **OPTIONS)


def main(what: str, processes: int, hooks: bool) -> None:
    lightning.seed_everything(1)
    distributed = {"strategy": "ddp", "devices": processes} if processes > 1 else {"devices": 1}
    wanted = Wanted()
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=FOLDER,
        callbacks=[wanted],
        **distributed,
    )
    module = WithHooks() if hooks else Module()
    used: Any
    if what == "fit":
        trainer.fit(module, *([] if hooks else [a_loader(shuffle=True), a_loader("val")]))
        used = trainer.train_dataloader
    elif what == "validate":
        trainer.validate(module, *([] if hooks else [a_loader("val")]))
        used = trainer.val_dataloaders
    else:
        trainer.predict(module, a_loader(), return_predictions=False)
        used = trainer.predict_dataloaders
    report(
        used,
        steps=trainer.global_step,
        trained=module.step.trained,
        tried=module.tried,
        predicted=wanted.rows,
        on_error=getattr(used, "on_error", None),
        sampler=type(used.sampler).__name__,
        batch_sampler=type(used.batch_sampler).__name__,
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), "hooks" in sys.argv)
