"""The tables of what loaders take are what their signatures say."""

from __future__ import annotations

import inspect

import torch

import antifreeze
from antifreeze.doctor.rules.af706_unknown_loader_argument import POSITIONAL
from antifreeze.doctor.source import library_names


def test_the_parameters_are_those_of_the_installed_loaders() -> None:
    loaders = {
        library_names.DATALOADER: torch.utils.data.DataLoader,
        library_names.ANTIFREEZE_DATALOADER: antifreeze.DataLoader,
    }
    for name, loader in loaders.items():
        parameters = inspect.signature(loader).parameters
        assert tuple(parameters) == library_names.ACCEPTED_ARGUMENTS[name]
        by_place = [each for each in parameters.values() if each.kind is each.POSITIONAL_OR_KEYWORD]
        assert len(by_place) == POSITIONAL
