"""What is looked at, with a torch that is told what it has."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from antifreeze._version import VERSION
from antifreeze.cli.gpu_check import checks
from antifreeze.cli.gpu_check.machine import describe


@pytest.fixture
def two_devices(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    module = SimpleNamespace(get_device_name=lambda: "Example GPU 9000")
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch, "get_device_module", lambda device: module)
    monkeypatch.setattr(torch.version, "hip", None)
    return module


@pytest.mark.usefixtures("two_devices")
def test_an_accelerator_is_described_by_its_own_name() -> None:
    machine = describe(None)
    assert machine.problem == ""
    assert (machine.device_type, machine.devices) == ("cuda", 2)
    assert machine.accelerator == "Example GPU 9000"
    assert (machine.torch, machine.antifreeze) == (str(torch.__version__), VERSION)


@pytest.mark.usefixtures("two_devices")
def test_rocm_is_told_from_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "hip", "6.3.1")
    assert describe(None).accelerator == "Example GPU 9000 (ROCm 6.3.1)"


def test_an_accelerator_without_a_name_is_called_by_its_type(two_devices: SimpleNamespace) -> None:
    del two_devices.get_device_name
    assert describe(None).accelerator == "cuda"


def test_torch_2_6_is_not_asked_for_an_accelerator_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def raises() -> None:
        raise RuntimeError("Cannot access accelerator device when none is available.")

    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", raises)
    assert describe(None).problem.startswith("no accelerator: ")


def test_a_device_that_a_developer_names_is_taken() -> None:
    machine = describe("cpu")
    assert (machine.problem, machine.device_type, machine.accelerator) == ("", "cpu", "CPU")


def test_work_can_be_queued_on_a_device() -> None:
    checks._keep_busy(torch.device("meta"), products=2)
