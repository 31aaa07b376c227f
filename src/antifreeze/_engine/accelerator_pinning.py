"""The accelerator's part of pinning."""

from __future__ import annotations

from typing import Any

import torch

from .._torch_internals import pin_memory


class AcceleratorPinner:
    """Pin for the current accelerator, as torch's loader does."""

    def __init__(self, device: str | None) -> None:
        self._device_type = device
        self._index = torch.accelerator.current_device_index()

    @property
    def device(self) -> str:
        return str(self._index)

    def enter_thread(self) -> None:
        torch.set_num_threads(1)  # thread-local; a copy must not take the cores of the model
        torch.accelerator.set_device_index(self._index)

    def pin(self, batch: Any) -> Any:
        return pin_memory(batch, self._device_type)
