"""A dataset that keeps its tensors on a GPU, and workers that read them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.definitions import PICKLING, Dataset
from ..source.loaders import Loader
from ..source.step_budget import cached_walk
from ..source.syntax.node_text import text_of
from ..source.view import View
from ._helpers.cuda_placement import puts_on_cuda
from .rule import CRASH, LIKELY, Hit, Rule

_TENSORS = "torch.utils.data.TensorDataset"
_DEEPEST = 6


def find(view: View) -> Iterator[Hit]:
    for dataset in view.datasets:
        workers = dataset.workers
        if workers is None or not workers.any or dataset.only_ours or view.sent_by(dataset):
            continue
        yield from _kept(dataset, view)
    for loader in view.loaders:
        if loader.workers.any and not loader.ours and loader.start_method not in PICKLING:
            yield from _given(loader, view)


def _kept(dataset: Dataset, view: View) -> Iterator[Hit]:
    prepared = {function.node for function in dataset.preparing}
    for attribute, places in dataset.attributes.items():
        for place in places:
            if place.value is None or place.method not in prepared or not dataset.uses(attribute):
                continue
            if _on_cuda(place.value, view):
                words = f"`self.{attribute}` is put on the GPU in `{place.method.name}`"
                yield Hit(view.here(place.node, dataset.node), f"{words} {_AND}")
    for function in dataset.preparing:
        for call in function.calls():  # self.model.cuda()
            match call.func:
                case ast.Attribute(attr="cuda" | "to", value=ast.Attribute(attr=attribute) as kept):
                    moved = function.module.class_of_self(kept.value) and dataset.uses(attribute)
                    parent = function.module.scopes.parents.get(call)
                    if moved and isinstance(parent, ast.Expr) and puts_on_cuda(call, view):
                        words = f"`self.{attribute}` is put on the GPU in `{function.name}`"
                        yield Hit(view.here(call, dataset.node), f"{words} {_AND}")
                case _:
                    pass


_AND = "and used by every worker: a forked one cannot use CUDA"


def _given(loader: Loader, view: View) -> Iterator[Hit]:
    made = loader.dataset_expression
    if not isinstance(made, ast.Call) or view.resolve(made.func) != _TENSORS:
        return
    for each in made.args:
        if _on_cuda(each, view):
            words = f"`{text_of(each)[:40]}` is on the GPU, and this loader's workers read it"
            yield Hit(loader.node, f"{words}: a forked one cannot use CUDA")
            return


@cached_walk
def _on_cuda(node: ast.expr, view: View, depth: int = 0) -> bool:
    """Whether what an expression makes is, or has parts, on a GPU."""
    if depth > _DEEPEST:
        return False
    for value in view.origins(node):
        match value:
            case ast.Call() if _is_unpacked(value, view):
                continue  # model, preprocess = load("ViT", device="cuda"): which of them?
            case ast.Call() if puts_on_cuda(value, view):
                return True
            case ast.Call(func=ast.Attribute(attr="cpu" | "numpy" | "tolist" | "item" | "to")):
                return False
            case ast.Call(func=ast.Attribute(value=before)) if isinstance(before, ast.Call):
                if _on_cuda(before, view, depth + 1):
                    return True
            case ast.List() | ast.Tuple():
                if any(_on_cuda(each, view, depth + 1) for each in value.elts):
                    return True
            case ast.ListComp():
                if _on_cuda(value.elt, view, depth + 1):
                    return True
            case ast.Dict():
                if any(_on_cuda(each, view, depth + 1) for each in value.values):
                    return True
            case _:
                pass
    return False


def _is_unpacked(call: ast.Call, view: View) -> bool:
    match view.module.scopes.parents.get(call):
        case ast.Assign(targets=[ast.Tuple() | ast.List()]):
            return True
        case _:
            return False


RULE = Rule(
    code="AF105",
    name="cuda-tensor-in-the-dataset",
    severity=CRASH,
    confidence=LIKELY,
    find=find,
)
