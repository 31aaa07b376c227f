"""The tables of what loaders take are what their signatures say."""

from __future__ import annotations

import inspect

import torch

import antifreeze
from antifreeze.doctor.rules.af706_unknown_loader_argument import POSITIONAL
from antifreeze.doctor.source import known


def test_the_parameters_are_those_of_the_installed_loaders() -> None:
    loaders = {known.DATALOADER: torch.utils.data.DataLoader, known.OURS: antifreeze.DataLoader}
    for name, loader in loaders.items():
        parameters = inspect.signature(loader).parameters
        assert tuple(parameters) == known.TAKEN[name]
        by_place = [each for each in parameters.values() if each.kind is each.POSITIONAL_OR_KEYWORD]
        assert len(by_place) == POSITIONAL
