"""timm's `create_loader`: the plain one, with its prefetcher, or the one for many epochs."""

from __future__ import annotations

import sys
from typing import Any

import torch
import vision  # noqa: F401  (timm imports torchvision)
from PIL import Image
from rows import Rows, report

from timm.data import create_loader  # isort: skip  (after `install`, which `rows` may call)


class Pictures(Rows):
    """Rows as pictures, with the attribute for a transform that timm sets."""

    transform: Any = None

    def __getitem__(self, index: int) -> Any:
        super().__getitem__(index)
        return self.transform(Image.new("RGB", (12, 12), (index, 0, 0))), index


if __name__ == "__main__":
    loader = create_loader(
        Pictures(96),
        input_size=(3, 8, 8),
        batch_size=4,
        is_training=True,
        num_workers=2,
        device=torch.device("cpu"),
        use_prefetcher="prefetcher" in sys.argv,
        use_multi_epochs_loader="epochs" in sys.argv,
        persistent_workers="persistent" in sys.argv,
    )
    model = torch.nn.Linear(3 * 8 * 8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    trained: list[list[int]] = []
    for _ in range(2):
        for pictures, index in loader:
            optimizer.zero_grad()
            model(pictures.flatten(1)).square().mean().backward()
            optimizer.step()
            trained.append(index.tolist())
    report(getattr(loader, "loader", loader), trained=trained)
