"""A DistributedSampler that gives every epoch the same order."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from ..findings import Confidence
from ..source import library_names
from ..source.file_summary import Summary
from ..source.loaders import Loader
from ..source.view import View
from .rule import CERTAIN, LIKELY, POSSIBLE, WRONG_DATA, Hit, Rule

_PARAMETERS = ("dataset", "num_replicas", "rank", "shuffle", "seed", "drop_last")
# Trainers that call set_epoch themselves.
_CALL_IT = ("lightning", "pytorch_lightning", "accelerate", "ignite", "transformers", "ray")

_STEPS = 3  # through the `__init__.py` of a package to who uses it


def find(view: View) -> Iterator[Hit]:
    if view.imports(*_CALL_IT) or view.project.any_file_calls("set_epoch"):
        return
    for call in view.calls(library_names.DISTRIBUTED_SAMPLER):
        arguments = view.call_arguments(call, _PARAMETERS)
        if arguments["shuffle"].is_(False) or view.for_evaluation(call) or _is_dropped(call, view):
            continue
        if any(each.for_evaluation for each in _loaders_with(call, view)):
            continue
        yield Hit(
            call,
            "nobody calls `set_epoch` on this sampler: every epoch has the order of the first one",
            _confidence(call, view),
        )


def _is_dropped(sampler: ast.Call, view: View) -> bool:
    """Whether the variable that it is given to has something else wherever it is used."""
    statement = view.module.scopes.parents.get(sampler)
    match statement:
        case ast.Assign(targets=[ast.Name(id=name) as target]):
            pass
        case _:
            return False
    every = view.module.bindings(target)
    mine = [each for each in every if each.node is statement]
    uses = [
        each
        for each in view.module.nodes(ast.Name)
        if each.id == name
        and isinstance(each.ctx, ast.Load)
        and view.module.bindings(each) == every
    ]
    reached = (each for use in uses for each in view.module.reaching(use))
    return bool(mine) and len(every) > 1 and bool(uses) and not any(e in mine for e in reached)


def _loaders_with(sampler: ast.Call, view: View) -> Iterator[Loader]:
    for loader in view.loaders:
        node = loader["sampler"].node
        if node is not None and sampler in view.origins(node):
            yield loader


def _confidence(sampler: ast.Call, view: View) -> Confidence:
    """Return how sure it is that we see who goes through the epochs."""
    if any(loop.epochs is not None for loop in view.loops):
        return CERTAIN
    if not view.project.has_epochs or _given_away(view) or not _epochs_near(view):
        return POSSIBLE
    function = view.function_around(sampler)
    owner = view.module.scopes.parents.get(function) if function is not None else None
    if function is not None and isinstance(owner, ast.ClassDef):  # a hook that a trainer calls?
        return LIKELY if view.project.any_file_calls(function.name) else POSSIBLE
    return LIKELY


def _epochs_near(view: View) -> bool:
    """Whether this file, or one that imports it, over a few steps, has a loop over epochs. Of
    others we do not know that they go through this loader more than once."""
    summary = view.project.summary_of(view.path)
    seen: dict[Path, Summary] = {view.path: summary} if summary is not None else {}
    steps = list(seen.values())
    for _ in range(_STEPS):
        found = [each for near in steps for each in view.project.importers(near.path)]
        steps = [each for each in found if each.path not in seen]
        seen.update({each.path: each for each in steps})
    return any(each.has_epochs for each in seen.values())


def _given_away(view: View) -> bool:
    """Whether a loader goes to somebody's `fit` that we do not see."""
    return any(
        view.function_of(call.func) is None
        and any(view.loader_of(each) for each in (*call.args, *(k.value for k in call.keywords)))
        for call in view.method_calls("fit", "train")
    )


RULE = Rule(
    code="AF601",
    name="sampler-without-set-epoch",
    severity=WRONG_DATA,
    confidence=LIKELY,
    find=find,
)
