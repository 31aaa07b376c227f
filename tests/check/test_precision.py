"""What rules say of programs that nobody tuned them on: words, and how sure they are."""

from __future__ import annotations

from antifreeze.doctor.check.running import check_text
from antifreeze.doctor.check.settings import Settings

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
