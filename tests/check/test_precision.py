"""What rules say of programs that nobody tuned them on: words, and how sure they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from antifreeze.doctor.check.checker import check, check_text
from antifreeze.doctor.check.settings import Settings
from antifreeze.doctor.findings import Confidence

LIKELY = Confidence.LIKELY

FIRST_BATCH = """from torch.utils.data import DataLoader


def train(dataset, step, keep):
    loader = DataLoader(dataset, batch_size=32, shuffle=True, num_workers=4, {})
    for number in range(10_000):
        step(next(iter(loader)))
"""


def test_the_first_batch_again_says_of_workers_that_stay_that_they_stay() -> None:
    (ended,) = check_text(FIRST_BATCH.format("")).found
    (kept,) = check_text(FIRST_BATCH.format("persistent_workers=True")).found
    assert ended.code == kept.code == "AF501"
    assert "ends them again" in ended.words
    assert "ends them again" not in kept.words and "new epoch" in kept.words
    assert not check_text(FIRST_BATCH.format("persistent_workers=keep"), Settings()).found


BRANCHES = """from torch.utils.data import DataLoader, Dataset


class Cuts(Dataset):
    def __getitem__(self, cuts):
        return cuts


def load(config, rows):
    if config.cuts:
        dataset = Cuts()
        {}
    else:
        dataset = rows(config)
    return DataLoader(dataset, batch_size=8)
"""


@pytest.mark.parametrize(
    ("ending", "said"),
    [("return dataset", []), ("raise ValueError(dataset)", []), ("print(dataset)", [LIKELY])],
)
def test_what_a_branch_binds_that_is_left_is_not_what_comes_after(
    ending: str, said: list[Confidence]
) -> None:
    found = check_text(BRANCHES.format(ending)).found
    assert [each.confidence for each in found if each.code == "AF701"] == said


def test_what_a_branch_binds_reaches_what_is_in_it() -> None:
    text = BRANCHES.format("return DataLoader(dataset)")
    (found,) = check_text(text).found
    assert found.code == "AF701" and "return DataLoader(dataset)" in found.source


def test_a_sampler_of_a_function_may_be_none() -> None:
    text = (
        "from torch.utils.data import DataLoader\n\n\ndef load(dataset, model):\n"
        "    return DataLoader(dataset, shuffle=True, sampler={})\n"
    )
    (sure,) = check_text(text.format("model.Sampler(dataset)")).found
    (unsure,) = check_text(
        text.format("model.sampler(dataset)"), Settings(confidence=Confidence.POSSIBLE)
    ).found
    assert sure.code == unsure.code == "AF704"
    assert (sure.confidence, unsure.confidence) == (Confidence.CERTAIN, Confidence.POSSIBLE)


def test_what_runs_over_first_in_a_comprehension_is_of_the_scope_around() -> None:
    text = """from torch.utils.data import Dataset


class Tiles(Dataset):
    names = ("a", "b")
    good = [each for each in names]
    bad = [other for each in names for other in names]

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return self.good[index], self.bad
"""
    (found,) = check_text(text).found
    assert (found.code, found.span.line, found.span.column) == ("AF705", 7, 48)


LOADERS = """from torch.utils.data import DataLoader, DistributedSampler


def loaders(dataset):
    return DataLoader(dataset, sampler=DistributedSampler(dataset), num_workers=2)
"""


@pytest.mark.parametrize("imports", ["from data import loaders", "from other import loaders"])
def test_epochs_count_where_the_loader_can_get_to(tmp_path: Path, imports: str) -> None:
    (tmp_path / "data.py").write_text(LOADERS)
    (tmp_path / "other.py").write_text("def loaders(dataset):\n    return [dataset]\n")
    (tmp_path / "train.py").write_text(
        f"{imports}\n\n\ndef train(dataset, epochs, step):\n    for epoch in range(epochs):\n"
        "        step(loaders(dataset))\n"
    )
    found = check(sorted(tmp_path.iterdir()), Settings()).found
    assert [each.code for each in found] == (["AF601"] if "data" in imports else [])
