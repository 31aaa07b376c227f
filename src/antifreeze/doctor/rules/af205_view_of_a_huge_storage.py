"""A sample that is a small view of a large tensor: the whole of it is sent."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.definitions import Dataset, Function
from ..source.loaders import Loader
from ..source.syntax.node_text import text_of
from ..source.view import View
from .rule import LIKELY, SLOW, Hit, Rule

# Who makes a tensor that the dataset holds.
_TENSORS = frozenset(
    f"torch.{name}"
    for name in ("tensor", "zeros", "ones", "empty", "rand", "randn", "randint", "arange", "full")
) | {"torch.from_numpy", "torch.as_tensor", "torch.stack", "torch.cat", "torch.frombuffer"}

# Who reads all of a file into one tensor.
_READERS = frozenset(
    {"torchvision.io.read_video", "torchaudio.load", "torch.load", "torchvision.io.read_image"}
    | {"torchvision.io.video.read_video"}
)


def find(view: View) -> Iterator[Hit]:
    reported: set[ast.AST] = set()
    for loader in view.loaders:
        dataset = loader.dataset
        if dataset is None or loader.ours or not loader.workers.any or not _sends_as_is(loader):
            continue
        for function in (dataset.method("__getitem__"), dataset.method("__iter__")):
            for part in _parts(function) if function is not None else ():
                name = ""
                if function is not None:
                    name = _held(part, function, dataset, view) or _decoded(part, view)
                if name and part not in reported:
                    reported.add(part)
                    yield Hit(
                        view.here(part, loader.node),
                        f"`{text_of(part)}` is a view of all of `{name}`, and nothing"
                        " copies it: to send it, a worker moves the whole tensor to shared memory",
                    )


def _sends_as_is(loader: Loader) -> bool:
    """Whether samples are sent as they are: no batches, or a collate function that gives back
    the list it got."""
    collate = loader["collate_fn"]
    if collate.absent or collate.is_(None):
        return loader["batch_size"].is_(None) and loader["batch_sampler"].absent
    if collate.node is not None and loader.view.resolve(collate.node) in ("list", "tuple"):
        return True
    function = loader.collate
    if function is None or not function.parameters:
        return False
    batch = function.parameters[-1]
    as_it_is = (batch, f"zip(*{batch})", f"tuple(zip(*{batch}))", f"list(zip(*{batch}))")
    return bool(function.returns) and all(
        each is not None and text_of(each) in as_it_is for each in function.returns
    )


def _parts(function: Function) -> Iterator[ast.expr]:
    """Yield the parts of the samples that a function returns or yields."""
    queue: list[ast.expr | None] = list(function.returns)
    queue += [each.value for each in function.nodes() if isinstance(each, ast.Yield)]
    while queue:
        match queue.pop():
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Dict(values=parts):
                queue += parts
            case ast.Subscript() as part:
                yield part
            case ast.Name() as name:
                values = function.module.values(name)
                queue += [each for each in values if not isinstance(each, ast.Name)]
            case _:
                pass


def _decoded(node: ast.expr, view: View) -> str:
    """Return the variable that a part is a slice of, if that is all of a file, read as a tensor."""
    match node:
        case ast.Subscript(value=ast.Name(id=name) as whole, slice=key):
            keys = key.elts if isinstance(key, ast.Tuple) else [key]
            if not any(isinstance(each, ast.Slice) for each in keys):
                return ""
            made = view.origins(whole)
            read = [e for e in made if isinstance(e, ast.Call) and view.resolve(e.func) in _READERS]
            return name if made and len(read) == len(made) else ""
        case _:
            return ""


def _held(node: ast.expr, function: Function, dataset: Dataset, view: View) -> str:
    """Return the attribute that a part is a view of, if that is a tensor."""
    match node:
        case ast.Subscript(value=ast.Attribute(attr=name, value=owner)):
            if function.module.class_of_self(owner) is None:
                return ""
            places = [each.value for each in dataset.assignments(name)]
            tensors = [
                each
                for each in places
                if isinstance(each, ast.Call) and view.resolve(each.func) in _TENSORS
            ]
            return f"self.{name}" if tensors and len(tensors) == len(places) else ""
        case _:
            return ""


RULE = Rule(
    code="AF205",
    name="view-of-a-huge-storage",
    severity=SLOW,
    confidence=LIKELY,
    find=find,
)
