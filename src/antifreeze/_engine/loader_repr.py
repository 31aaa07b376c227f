"""What `print(loader)` says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._reporting.redaction import shareable_line
from .._torch_internals import is_stream

if TYPE_CHECKING:
    from .loader_protocol import Loader


def state_of(loader: Loader) -> str:
    """Tell what a loader is, how far its loop has come, and how it fares."""
    if not {"num_workers", "batch_size", "dataset"} <= vars(loader).keys():
        return f"<{type(loader).__name__}, not made yet>"
    parts = [f"{type(loader).__name__} ({loader._made_at})", _what(loader)]
    if source := loader._worker_source():
        parts.append(f"workers: {source}")
    entry = vars(loader).get("_counted")
    if entry is not None and entry.accounts.epochs:
        parts.append(_how_far(loader, loader._settled().accounts.epochs))
        accounts = entry.accounts
        parts.append(f"waited {accounts.wait_share:.0%} of {accounts.seconds:.3g} s")
        if entry.faults.seen:
            parts.append(f"{entry.faults.seen} fault" + "s" * (entry.faults.seen != 1))
    return f"<{shareable_line('; '.join(parts))}>"


def _what(loader: Loader) -> str:
    workers = "no workers"
    if loader.num_workers:
        workers = f"{loader.num_workers} worker" + "s" * (loader.num_workers != 1)
    if is_stream(loader):
        return f"a stream, {_batches(loader)}, {workers}"
    try:
        count = f"{len(loader):,} "
    except Exception:  # of a sampler without a length, or one that raises
        count = ""
    return f"{count}{_batches(loader)}, {workers}"


def _batches(loader: Loader) -> str:
    return "batches" if loader.batch_size is None else f"batches of {loader.batch_size}"


def _how_far(loader: Loader, epochs: int) -> str:
    from .iterator import snapshots_of

    snapshots = snapshots_of(loader)
    if not snapshots:
        return f"{epochs} epoch" + "s" * (epochs != 1) + " begun"
    return f"epoch {epochs}, batch {snapshots[-1].supervisor.progress.delivered:,}"
