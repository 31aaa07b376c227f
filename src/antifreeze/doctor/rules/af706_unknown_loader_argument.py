"""Arguments that a loader does not have."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator, Sequence

from ..source import library_names
from ..source.view import View
from .rule import CERTAIN, CRASH, LIKELY, Hit, Rule

POSITIONAL = 13  # of torch's DataLoader: the others are by keyword only


def find(view: View) -> Iterator[Hit]:
    for name, takes in library_names.ACCEPTED_ARGUMENTS.items():
        for call in view.calls(name):
            yield from _looked_at(call, takes)
    for loader in view.loaders:
        if _is_super_of_torchs(loader.node, view):
            yield from _looked_at(
                loader.node, library_names.ACCEPTED_ARGUMENTS[library_names.DATALOADER]
            )
    for call in view.training_arguments:
        for keyword in call.keywords:
            word = keyword.arg or ""
            if (
                word.startswith("dataloader_")
                and word not in library_names.TRAINING_LOADER_ARGUMENTS
            ):
                yield _unknown(
                    keyword, library_names.TRAINING_LOADER_ARGUMENTS, "TrainingArguments has"
                )


def _looked_at(call: ast.Call, takes: Sequence[str]) -> Iterator[Hit]:
    for keyword in call.keywords:
        if keyword.arg is not None and keyword.arg not in takes:
            yield _unknown(keyword, takes, "the loader has")
    if any(isinstance(each, ast.Starred) for each in call.args):
        return
    if len(call.args) > POSITIONAL:
        yield Hit(call, f"the loader takes {POSITIONAL} arguments without their names at most")
    named = {each.arg for each in call.keywords}
    for place in range(min(len(call.args), POSITIONAL)):
        if takes[place] in named:
            yield Hit(call, f"the loader gets {takes[place]!r} twice")
    if not call.args and "dataset" not in named and None not in named:
        yield Hit(call, "the loader gets no dataset")


def _unknown(keyword: ast.keyword, takes: Sequence[str], who: str) -> Hit:
    word = keyword.arg or ""
    near = difflib.get_close_matches(word, takes, 1, 0.75)
    more = f": {near[0]!r} was meant" if near else ""
    return Hit(keyword, f"{who} no argument {word!r}{more}", CERTAIN if near else LIKELY)


def _is_super_of_torchs(call: ast.Call, view: View) -> bool:
    """Whether it is `super().__init__()` of a class whose one base is torch's loader."""
    match call.func:
        case ast.Attribute(attr="__init__", value=ast.Call(func=ast.Name(id="super"), args=[])):
            owner = view.module.class_around(call)
            return (
                owner is not None
                and len(owner.bases) == 1
                and view.resolve(owner.bases[0]) == library_names.DATALOADER
            )
        case _:
            return False


RULE = Rule(
    code="AF706",
    name="unknown-loader-argument",
    severity=CRASH,
    confidence=CERTAIN,
    find=find,
)
