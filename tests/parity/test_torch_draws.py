"""`randomness="torch"`: a run without faults equals torch's, bit for bit; after one it says so."""

from __future__ import annotations

import logging
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import Dataset, get_worker_info

from antifreeze import DataLoader, policies

from ..doctor.patient_programs import blindness
from ..patience import PATIENCE_S
from ..repetition import some_of
from . import compare_programs
from .drawing_programs import EagerBatches, Rows

PROGRAMS = 72
PARTS = 9  # each imports torch
ROOT = Path(__file__).parents[2]


# Left in mid-epoch on a busy machine, torch's loader closes queues that it still writes to.
@pytest.mark.filterwarnings("ignore:Exception in thread QueueFeederThread")
@pytest.mark.parametrize("part", some_of(range(PARTS), 1))
def test_random_programs_receive_train_and_draw_what_they_do_with_torch(part: int) -> None:
    numbers = map(str, (part, PROGRAMS, PARTS))
    command = [sys.executable, "-m", "tests.parity.compare_programs", *numbers]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "0 differ\n"
    print(done.stderr)  # which programs did not end with torch's loader, and were run again


def _leaves_a_process() -> list[Any]:
    if os.fork() == 0:
        time.sleep(1000)
    return [7]


def _never_ends() -> list[Any]:
    time.sleep(1000)
    return []


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_program_that_does_not_end_or_leaves_a_process_behind_is_told_with_stacks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if reason := blindness():
        pytest.skip(f"stacks cannot be taken here: {reason}")
    monkeypatch.setattr(compare_programs, "LEFT_S", 1.0)
    with compare_programs.Program("one", _leaves_a_process, at_once=True) as program:
        assert program.result() == ["7"]
        assert "_leaves_a_process" in program.left_behind()
    assert program.left_behind() == ""
    monkeypatch.setattr(compare_programs, "BOUND_S", 1.0)
    with compare_programs.Program("another", _never_ends, at_once=True) as program:
        assert program.result() == "did not end in 1 s"
    told = capsys.readouterr().err
    assert told.startswith("another did not end in 1 s:") and "_never_ends" in told


class Draws(Dataset[Any]):
    """Tells what each generator gave, and which worker it was."""

    def __init__(self, length: int = 24, kills: int = -1, once: Path | None = None) -> None:
        self.length, self.kills, self.once = length, kills, once

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> list[float]:
        if index == self.kills and self.once is not None and not self.once.exists():
            self.once.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if index == self.kills and self.once is None:
            raise ValueError(f"sample {index} is bad")
        info = get_worker_info()
        drawn = [random.random(), float(np.random.rand()), float(torch.rand(()))]
        return [index, -1 if info is None else info.id, *drawn]


def batches_of(loader: Any) -> list[Any]:
    torch.manual_seed(0)
    return [torch.stack([torch.as_tensor(each) for each in batch]).tolist() for batch in loader]


def test_a_worker_that_is_lost_is_replaced_and_its_draws_are_new_ones_and_that_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    theirs = batches_of(TorchLoader(Draws(), 2, num_workers=2))
    dataset = Draws(kills=10, once=tmp_path / "killed")
    with caplog.at_level(logging.WARNING, "antifreeze"):
        ours = batches_of(DataLoader(dataset, 2, num_workers=2, randomness="torch"))
    assert [each[0] for each in ours] == [each[0] for each in theirs]  # the indices
    first = next(at for at in range(12) if ours[at] != theirs[at])
    assert 2 <= first <= 5  # what came before it was lost is torch's
    drawn = [number for batch in ours for row in batch[2:] for number in row]
    assert len({*drawn}) == len(drawn)  # no worker drew what another one had
    told = [each.getMessage() for each in caplog.records]
    assert sum("draws differ from those of torch" in each for each in told) == 1, told
    (line,) = (each for each in told if "draws differ" in each)
    assert re.search(r"worker 1 was replaced, so from here on random draws differ", line)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("action", ["replace", "skip", "retry"])
def test_a_sample_that_is_replaced_left_out_or_tried_again_is_said_to_change_the_draws(
    workers: int, action: str, caplog: pytest.LogCaptureFixture
) -> None:
    on_error: Any = policies.replacing(retries=1) if action == "retry" else action
    loader = DataLoader(
        Draws(kills=5), 2, num_workers=workers, on_error=on_error, randomness="torch"
    )
    with caplog.at_level(logging.WARNING, "antifreeze"):
        seen = batches_of(loader)
        seen += batches_of(loader)
    assert len(seen) == 24
    told = [each.getMessage() for each in caplog.records]
    assert sum("sample 5 was" in each and "draws differ" in each for each in told) == 1, told


@pytest.mark.parametrize("workers", [0, 2])
def test_a_healthy_run_says_nothing_and_an_error_that_is_raised_changes_no_draw(
    workers: int, caplog: pytest.LogCaptureFixture
) -> None:
    def run(loader_class: Any, **more: Any) -> list[Any]:
        torch.manual_seed(0), random.seed(0), np.random.seed(0)
        loader = loader_class(Draws(kills=5), 2, num_workers=workers, **more)
        iterator, seen = iter(loader), []
        while True:
            try:
                seen.append(next(iterator))
            except ValueError:
                seen.append("raised")
            except StopIteration:
                return seen

    with caplog.at_level(logging.WARNING, "antifreeze"):
        assert repr(run(DataLoader, randomness="torch")) == repr(run(TorchLoader))
    assert not caplog.records


def test_a_sampler_that_draws_its_whole_order_at_once_is_asked_as_often_as_torch_asks_it() -> None:
    orders = {}
    for name, loader_class in (("torch", TorchLoader), ("ours", DataLoader)):
        torch.manual_seed(4)
        loader = loader_class(Rows(12, ""), batch_sampler=EagerBatches(12), num_workers=2)
        orders[name] = [[batch[0][:, 0].tolist() for batch in loader] for _ in range(2)]
    assert orders["ours"] == orders["torch"]


def test_beside_a_thread_workers_are_forked_as_torchs_are() -> None:
    """What a module has drawn from a generator of its own is inherited by a fork alone."""
    done = threading.Event()
    threading.Thread(target=done.wait, daemon=True).start()
    try:
        seen = {}
        for loader_class, more in ((TorchLoader, {}), (DataLoader, {"randomness": "torch"})):
            generator = np.random.default_rng(1)
            generator.random(7)
            dataset = [partial(next, (generator.random() for _ in range(9)))] * 4  # not picklable
            loader = loader_class(dataset, collate_fn=_called, num_workers=2, **more)
            seen[loader_class] = list(loader)
        assert seen[TorchLoader] == seen[DataLoader]
    finally:
        done.set()


def _called(samples: list[Any]) -> Any:
    return [sample() for sample in samples]


# ---- beyond draws: what else makes a loss differ -------------------------------------------------


def test_a_quarantined_sample_is_said_to_change_the_draws(caplog: pytest.LogCaptureFixture) -> None:
    options: Any = {"quarantine": [3], "on_error": "skip", "randomness": "torch"}
    with caplog.at_level(logging.WARNING, "antifreeze"):
        assert len(batches_of(DataLoader(Draws(), 2, num_workers=2, **options))) == 12
    assert "sample 3 was skipped, so from here on random draws differ" in caplog.text


class Counts(Dataset[Any]):
    def __init__(self) -> None:
        self.seen = 0

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        self.seen += 1
        return self.seen


def test_where_warnings_are_errors_a_loop_gets_through(caplog: pytest.LogCaptureFixture) -> None:
    with warnings.catch_warnings(), caplog.at_level(logging.WARNING, "antifreeze"):
        warnings.simplefilter("error")
        loader = DataLoader(Counts(), 2, num_workers=1, randomness="torch")
        for _ in range(2):  # what has changed is told at the next loop
            assert [batch.tolist() for batch in loader] == [[1, 2], [3, 4], [5, 6], [7, 8]]
    assert "dataset.seen (0, now 8) has changed in a worker" in caplog.text


def shifted(samples: list[Any]) -> Any:
    tokens = torch.stack(samples)
    return tokens[:, :-1], tokens[:, 1:]


def odd_views(samples: list[Any]) -> Any:
    numbers = torch.stack(samples).float()
    wide = torch.rand(9, 33)
    return {
        "every other": numbers[:, ::2],
        "turned": wide[:, :20].t(),
        "same": [wide, wide],
        "row": wide[3],
        "bytes": wide.view(torch.uint8)[1:, :5],
        "wide": wide.expand(2, 9, 33),
    }


@pytest.mark.parametrize("collate", [shifted, odd_views])
@pytest.mark.parametrize("size", [12, 9000])  # in the message, in a slab
def test_views_arrive_with_their_strides_and_share_what_they_share(collate: Any, size: int) -> None:
    def run(loader_class: Any, **more: Any) -> list[Any]:
        torch.manual_seed(0)
        dataset = torch.arange(6 * size).reshape(6, size)
        loader = loader_class(dataset, 3, collate_fn=collate, num_workers=1, **more)
        seen: list[Any] = []
        for batch in loader:
            views = list(batch.values()) if isinstance(batch, dict) else list(batch)
            views = [each for view in views for each in (view if type(view) is list else [view])]
            seen += [(each.stride(), each.dtype, each.is_conj()) for each in views]
            seen += [each.sum().item() for each in views]
            views[0].zero_()
            views[1][0] = 1
            seen += [each.tolist() for each in views]
        return seen

    assert run(DataLoader, randomness="torch") == run(TorchLoader)


class Normed(Dataset[Any]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        image = np.random.rand(224, 224, 3)
        return image / np.linalg.norm(image), np.linalg.inv(image[:100, :100, 0])


def test_linear_algebra_of_numpy_gives_the_same_bits() -> None:
    def run(loader_class: Any, **more: Any) -> list[Any]:
        torch.manual_seed(0)
        loader = loader_class(Normed(), 2, num_workers=2, **more)
        return [part.numpy().tobytes() for batch in loader for part in batch]

    assert run(DataLoader, randomness="torch") == run(TorchLoader)


SPAWNS = """
import random, sys, torch
from torch.utils.data import DataLoader
import antifreeze
generator = random.Random(1)
class Draws:
    def __len__(self): return 6
    def __getitem__(self, index): return [generator.random(), float(torch.rand(()))]
def run(loader_class, method, **more):
    torch.manual_seed(0)
    loader = loader_class(Draws(), 2, num_workers=2, multiprocessing_context=method, **more)
    return [[part.tolist() for part in batch] for batch in loader]
if __name__ == "__main__":
    generator.random()
    torch.set_default_dtype(torch.float64)
    theirs = run(DataLoader, "spawn")  # a fork server's workers begin as these do
    for method in sys.argv[1:]:
        assert run(antifreeze.DataLoader, method, randomness="torch") == theirs
"""


def test_workers_that_are_not_forked_begin_as_torchs_do(tmp_path: Path) -> None:
    script = tmp_path / "spawns.py"
    script.write_text(SPAWNS)
    run([sys.executable, str(script), "spawn", "forkserver"])


# ---- where it can be said ------------------------------------------------------------------------


def test_the_values_are_sample_and_torch_and_others_are_refused() -> None:
    assert DataLoader([1]).randomness == "sample"
    assert DataLoader([1], randomness="torch").randomness == "torch"
    for value in ("Torch", "none", "", None, 3, ["torch"]):
        with pytest.raises(ValueError, match=r'randomness option should be "sample" or "torch"'):
            DataLoader([1], randomness=value)
    loader = DataLoader([1])
    loader.randomness = "numpy"
    with pytest.raises(ValueError, match="randomness option"):
        iter(loader)


SCRIPT = """
import random, torch
from torch.utils.data import DataLoader
class Draws:
    def __len__(self): return 8
    def __getitem__(self, index): return random.random() + float(torch.rand(()))
if __name__ == "__main__":
    torch.manual_seed(0)
    random.seed(0)
    print([batch.tolist() for batch in DataLoader(Draws(), 2, num_workers=2)])
"""


def test_the_command_and_the_environment_say_it_too(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    ours = [sys.executable, "-m", "antifreeze", "run"]
    lines = {
        "torch": run([sys.executable, str(script)]),
        "ours": run([*ours, str(script)]),
        "option": run([*ours, "--randomness", "torch", str(script)]),
        "environment": run([*ours, str(script)], ANTIFREEZE_RANDOMNESS="torch"),
        "option over environment": run(
            [*ours, "--randomness", "sample", str(script)], ANTIFREEZE_RANDOMNESS="torch"
        ),
    }
    assert lines["option"] == lines["environment"] == lines["torch"] != lines["ours"]
    assert lines["option over environment"] == lines["ours"]


INSTALLS = """
import antifreeze
from torch.utils.data import DataLoader
antifreeze.install(randomness="torch")
assert DataLoader([1]).randomness == "torch"
assert antifreeze.DataLoader([1], randomness="sample").randomness == "sample"
try:
    antifreeze.install(randomness="numpy")
except ValueError as error:
    print(error)
assert DataLoader([1]).randomness == "torch"
"""


def test_install_makes_it_the_default_and_what_a_loader_says_itself_wins() -> None:
    assert 'should be "sample" or "torch"' in run([sys.executable, "-c", INSTALLS])


def test_a_wrong_value_in_the_environment_is_named_where_a_loader_is_made() -> None:
    command = [sys.executable, "-c", "import antifreeze; antifreeze.DataLoader([1])"]
    done = start(command, ANTIFREEZE_RANDOMNESS="numpy")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        'ValueError: randomness option should be "sample" or "torch", but got'
        " randomness='numpy' (from ANTIFREEZE_RANDOMNESS)"
    )


def start(command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=300
    )


def run(command: list[str], **environment: str) -> str:
    done = start(command, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout
