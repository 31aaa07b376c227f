"""transformers' Trainer: two epochs with an evaluation each; then it goes on from a checkpoint."""

from __future__ import annotations

import sys
from typing import Any

from rows import FOLDER, Rows, Step, report

from transformers import Trainer, TrainingArguments  # isort: skip  (after `install`)

if WITH_OWN := "own-loader" in sys.argv:
    from rows import DataLoader


class WithOwnLoader(Trainer):
    """As a user would try it: the hook gives our loader, and nobody prepares it."""

    def get_train_dataloader(self) -> Any:
        return DataLoader(self.train_dataset, batch_size=4, shuffle=True, num_workers=2)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        return DataLoader(self.eval_dataset, batch_size=4, num_workers=2)


if __name__ == "__main__":
    step = Step()
    arguments = TrainingArguments(
        output_dir=str(FOLDER / "saved"),
        num_train_epochs=2,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        dataloader_num_workers=2,
        remove_unused_columns=False,
        eval_strategy="epoch",
        save_strategy="steps",
        save_steps=10,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        seed=1,
    )
    kind = WithOwnLoader if WITH_OWN else Trainer
    trainer = kind(step, arguments, train_dataset=Rows(96), eval_dataset=Rows(48, "val"))
    trainer.train()
    steps = trainer.state.global_step
    trained, tried = step.trained, step.tried
    facts: dict[str, Any] = {}
    if "resume" in sys.argv:
        again = Step()
        arguments.eval_strategy = "no"
        trainer = kind(again, arguments, train_dataset=Rows(96, "again"))
        trainer.train(resume_from_checkpoint=str(FOLDER / "saved" / "checkpoint-10"))
        facts = {"resumed": again.trained, "resumed_steps": trainer.state.global_step}
    prepared = trainer.get_train_dataloader()
    loader = getattr(prepared, "base_dataloader", prepared)
    report(loader, steps=steps, trained=trained, tried=tried, **facts)
