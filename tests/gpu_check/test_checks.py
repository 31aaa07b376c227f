"""Each check, in this process, on the device "cpu": right loaders pass, wrong ones are found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from antifreeze import DataLoader
from antifreeze.cli.gpu_check import checks, ddp_verdict
from antifreeze.cli.gpu_check.checks import CHECKS, CopyLoad, Setting
from antifreeze.cli.gpu_check.known_data import Numbered, fault
from antifreeze.cli.gpu_check.outcomes import Outcome, Verdict
from antifreeze.cli.gpu_check.throughput import ThroughputLoad

COPIES = CopyLoad(batches=40, batch_size=4, values=4096)
THROUGHPUT = ThroughputLoad(images=32, pixels=16, batch_size=4, rounds=3)


class RepeatsABatch(DataLoader[Any]):
    """Wrong: what comes fourth is the third batch once more."""

    def __iter__(self) -> Iterator[Any]:
        previous = None
        for position, batch in enumerate(super().__iter__()):
            yield previous if position == 3 else batch
            previous = batch


class LosesABatch(DataLoader[Any]):
    """Wrong: the last batch never comes."""

    def __iter__(self) -> Iterator[Any]:
        *others, _ = super().__iter__()
        yield from others


class OverwritesABatch(DataLoader[Any]):
    """Wrong: the memory of a batch is used again as soon as the next one is asked for."""

    def __iter__(self) -> Iterator[Any]:
        for batch in super().__iter__():
            yield batch
            if isinstance(batch, torch.Tensor):
                batch.fill_(-1.0)


class LateTensor(torch.Tensor):
    """Copied when somebody looks at the copy, as by a device with a long queue."""

    def to(self, *args: Any, **options: Any) -> torch.Tensor:
        return self


class OverwritesDuringCopies(OverwritesABatch):
    def __iter__(self) -> Iterator[Any]:
        for batch in super().__iter__():
            yield batch.as_subclass(LateTensor)


class Refuses(DataLoader[Any]):
    def __iter__(self) -> Iterator[Any]:
        raise RuntimeError("a tensor on xpu:0 cannot be sent; call cpu() in the dataset")


class PinnedTensor(torch.Tensor):
    """Says that it is pinned, on machines that cannot pin."""

    def is_pinned(self, device: Any = None) -> bool:
        return True


class SaysPinned(DataLoader[Any]):
    def __init__(self, *args: Any, pin_memory: bool = False, **options: Any) -> None:
        super().__init__(*args, **options)
        self.says_pinned = pin_memory

    def __iter__(self) -> Iterator[Any]:
        for batch in super().__iter__():
            yield batch.as_subclass(PinnedTensor) if self.says_pinned else batch


def perform(name: str, loader: Callable[..., Any] = DataLoader) -> Outcome:
    setting = Setting(torch.device("cpu"), loader, COPIES, THROUGHPUT)
    return CHECKS[name](setting)


@pytest.mark.parametrize("name", ["copies", "context", "in workers", "throughput"])
def test_on_a_cpu_each_check_of_our_loader_is_ok(name: str) -> None:
    outcome = perform(name)
    assert outcome.verdict is Verdict.OK, outcome


def test_pinning_without_an_accelerator_is_skipped_and_not_ok() -> None:
    outcome = perform("pinning")
    assert outcome.verdict is Verdict.SKIPPED
    assert outcome.summary == "skipped: pinned memory needs an accelerator"


@pytest.mark.parametrize("name", ["copies", "context", "in workers", "throughput"])
@pytest.mark.parametrize("loader", [RepeatsABatch, LosesABatch])
def test_wrong_batches_are_found_by_every_check(name: str, loader: type[Any]) -> None:
    outcome = perform(name, loader)
    assert (outcome.verdict, outcome.summary) == (Verdict.FAILED, "wrong")
    assert outcome.detail


def test_a_wrong_batch_is_named_by_its_position() -> None:
    assert perform("copies", RepeatsABatch).detail == (
        "pin_memory=False: 1 of 40 batches have wrong values (at 3)"
    )


def test_copies_are_asked_for_before_memory_may_be_used_again() -> None:
    assert perform("copies", OverwritesABatch).verdict is Verdict.OK  # the copy came first
    assert perform("context", OverwritesABatch).summary == "wrong"  # batches were kept


def test_memory_that_is_used_again_while_a_copy_is_under_way_is_found() -> None:
    outcome = perform("copies", OverwritesDuringCopies)
    assert outcome.summary == "wrong"
    assert outcome.detail.startswith("pin_memory=False: 40 of 40 batches have wrong values")


def test_an_error_in_the_worker_is_refused_with_its_words() -> None:
    outcome = perform("in workers", Refuses)
    assert (outcome.verdict, outcome.summary) == (Verdict.FAILED, "refused")
    assert "call cpu() in the dataset" in outcome.detail


def test_pinned_batches_are_ok_if_they_say_so_and_are_equal() -> None:
    assert checks.pinned_batches(SaysPinned).verdict is Verdict.OK


@pytest.mark.skipif(torch.accelerator.is_available(), reason="batches are pinned there")
@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set")
def test_batches_that_are_not_pinned_are_told() -> None:
    outcome = checks.pinned_batches(DataLoader)
    assert (outcome.verdict, outcome.summary) == (Verdict.FAILED, "not pinned")
    assert outcome.detail == "16 of 16 batches, with 0 workers"


def test_wrong_pinned_batches_are_told() -> None:
    class Wrong(RepeatsABatch, SaysPinned):
        pass

    assert checks.pinned_batches(Wrong).summary == "wrong"


def test_where_the_workers_come_from_is_told() -> None:
    assert perform("context").summary in ("ok (fork)", "ok (clean process)")


def test_the_throughput_is_a_ratio_with_its_spread() -> None:
    outcome = perform("throughput")
    assert float(outcome.summary.removesuffix("x")) > 0
    assert "images/s" in outcome.detail and "in 3 rounds" in outcome.detail


def test_the_values_of_every_sample_are_exact() -> None:
    load = CopyLoad()
    assert load.batches * load.batch_size + load.values < 2**24
    dataset = Numbered(10, 3)
    batches = [dataset.batch(position, 4) for position in range(3)]
    assert fault(batches, dataset, 4) == ""
    assert fault(batches[:2], dataset, 4) == "2 batches instead of 3"


def report_of(seen: list[int], gradients: list[list[float]]) -> dict[str, Any]:
    return {"backend": "gloo", "seen": seen, "gradients": gradients}


EVEN, ODD = list(range(0, ddp_verdict.SAMPLES, 2)), list(range(1, ddp_verdict.SAMPLES, 2))


def test_ranks_that_share_all_samples_and_agree_are_ok() -> None:
    reports = [report_of(EVEN, [[0.5]]), report_of(ODD, [[0.5]])]
    outcome = ddp_verdict.judge(reports)
    assert (outcome.verdict, outcome.summary) == (Verdict.OK, "ok (gloo, 2 ranks)")


def test_a_sample_that_two_ranks_saw_is_wrong() -> None:
    reports = [report_of(EVEN, [[0.5]]), report_of([*ODD[:-1], 0], [[0.5]])]
    outcome = ddp_verdict.judge(reports)
    assert outcome.summary == "wrong"
    assert outcome.detail == "1 of 96 samples missing, 1 more than once"


def test_gradients_that_differ_are_wrong() -> None:
    reports = [report_of(EVEN, [[0.5]]), report_of(ODD, [[0.25]])]
    assert ddp_verdict.judge(reports).summary == "wrong gradients"


@pytest.mark.parametrize(
    ("device", "devices", "ranks"), [("cpu", 0, 2), ("cuda", 1, 1), ("cuda", 8, 2), ("xpu", 2, 2)]
)
def test_there_is_a_rank_for_each_of_at_most_two_devices(
    device: str, devices: int, ranks: int
) -> None:
    assert ddp_verdict.ranks_for(device, devices) == ranks
