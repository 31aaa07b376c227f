"""Rank and world size, from wherever they are known."""

from __future__ import annotations

import torch.distributed as dist

from antifreeze._reporting.ranks import Ranks, ranks


def test_one_process_is_rank_zero_of_one() -> None:
    assert ranks({}) == Ranks(0, 1, 0, 1)


def test_torchrun_and_slurm_say_it_by_their_variables() -> None:
    torchrun = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
    assert ranks(torchrun) == Ranks(5, 8, 1, 4)
    slurm = {"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_LOCALID": "1"}
    assert ranks(slurm) == Ranks(3, 4, 1, 2)


def test_rubbish_in_the_environment_is_ignored() -> None:
    assert ranks({"RANK": "", "WORLD_SIZE": "many"}) == Ranks(0, 1, 0, 1)


def test_a_process_group_knows_better_than_the_environment(tmp_path) -> None:
    dist.init_process_group(
        "gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1
    )
    try:
        found = ranks({"RANK": "5", "WORLD_SIZE": "8"})
    finally:
        dist.destroy_process_group()
    assert (found.rank, found.world_size) == (0, 1)
