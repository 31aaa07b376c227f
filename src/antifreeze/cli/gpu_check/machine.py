"""What is looked at: the accelerator, and the versions of what uses it.

The command reads a `Machine`; only the process that makes one imports torch.
"""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass
from typing import Any

from ..._linux import platform_support
from ..._version import VERSION


@dataclass(frozen=True, slots=True)
class Machine:
    """The part of a report that is no check."""

    problem: str  # why nothing can be checked here; empty if it can
    device_type: str = ""
    devices: int = 0
    accelerator: str = ""  # its name
    torch: str = ""
    python: str = ""
    antifreeze: str = ""

    def as_data(self) -> dict[str, Any]:
        return asdict(self)


def describe(wanted: str | None) -> Machine:
    """Look for an accelerator, or take the type of device that a developer wants."""
    import torch

    if problem := platform_problem() or _torch_problem():
        return Machine(problem)
    if wanted is not None:
        device_type = torch.device(wanted).type
    elif not torch.accelerator.is_available():
        return Machine(
            "no accelerator: torch.accelerator.is_available() is False"
            f" (torch {torch.__version__}); there is nothing to check"
        )
    else:
        found = torch.accelerator.current_accelerator()
        assert found is not None  # one is available
        device_type = found.type
    on_cpu = device_type == "cpu"
    return Machine(
        problem="",
        device_type=device_type,
        devices=0 if on_cpu else torch.accelerator.device_count(),
        accelerator="CPU" if on_cpu else _name(device_type),
        torch=str(torch.__version__),
        python=platform.python_version(),
        antifreeze=VERSION,
    )


def platform_problem() -> str:
    """Return why torch's own loader does the work on this platform, or nothing. Needs no torch."""
    if platform_support.switched_off():
        return _nothing(f"antifreeze is switched off by {platform_support.SWITCH}")
    lacking = platform_support.missing()
    return _nothing(f"this platform lacks {', '.join(lacking)}") if lacking else ""


def _torch_problem() -> str:
    """Return why torch's own loader does the work with this torch, or nothing."""
    from ... import _torch_internals
    from ..._torch_internals import Purpose

    why = _torch_internals.fault() or _torch_internals.fault(Purpose.PINNING)
    return _nothing(why) if why else ""


def _nothing(why: str) -> str:
    return f"{why}: DataLoader works as torch's here, and there is nothing to check"


def _name(device_type: str) -> str:
    """Return what the accelerator calls itself; its type where it has no name."""
    import torch

    module = torch.get_device_module(device_type)
    name_of = getattr(module, "get_device_name", None)
    name = str(name_of()) if callable(name_of) else device_type
    hip = device_type == "cuda" and torch.version.hip
    return f"{name} (ROCm {torch.version.hip})" if hip else name
