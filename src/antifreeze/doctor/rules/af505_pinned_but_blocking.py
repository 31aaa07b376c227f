"""Pinned batches that are copied to the GPU while everything waits."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from ..source import library_names
from ..source.loader_loops import LoaderLoop, LoopNode
from ..source.loaders import Loader
from ..source.syntax.node_text import text_of
from ..source.view import View
from .rule import LIKELY, POSSIBLE, SLOW, Fix, Hit, Rule, SetArgument

# Of a tensor's methods, by place; `.to` also takes another tensor, or a type, and non_blocking.
_PARAMETERS = {"to": ("device", "dtype", "non_blocking"), "cuda": ("device", "non_blocking")}


def find(view: View) -> Iterator[Hit]:
    reported = set[ast.Call]()
    for loop in view.loops:
        if loop.loader is None or not _pins(loop.loader, view) or _is_there(loop.loader, view):
            continue
        batch = _batch(loop)
        for call in _calls(loop.body):
            if call in reported or not _copies(call, view) or not batch.has(call):
                continue
            part = batch.is_part(call)
            if not part and _own_type(loop.loader, view):
                continue
            reported.add(call)
            yield Hit(
                call,
                f"`{text_of(call)}` waits until the copy is done, though the loader pins its"
                " batches: the copy and the work of the GPU do not overlap",
                LIKELY if part or loop.loader["collate_fn"].absent else POSSIBLE,
                _fix(call) if part and _gives_tensors(loop.loader) else None,
            )


def _fix(call: ast.Call) -> Fix:
    return Fix("pass non_blocking=True", (SetArgument(call, "non_blocking", "True"),))


def _gives_tensors(loader: Loader) -> bool:
    """Whether what its batches have and can be copied are tensors: the default collate function
    knows no other such type. Without batches it passes on whatever it is given."""
    size = loader["batch_size"]
    by_batches = size.absent or isinstance(size.value, int)
    torchs = loader.kind in (library_names.DATALOADER, library_names.ANTIFREEZE_DATALOADER)
    return torchs and by_batches and loader["collate_fn"].absent


def _own_type(loader: Loader, view: View) -> bool:
    """Whether a batch is of a class of the project, which may copy as it likes."""
    node = loader["collate_fn"].node
    if node is None:
        return False
    made = [node, *(view.value(each) or each for each in _returned(loader))]
    return any(
        view.class_of(each.func if isinstance(each, ast.Call) else each) is not None
        for each in made
        if isinstance(each, (ast.Name, ast.Attribute, ast.Call))
    )


def _returned(loader: Loader) -> Iterator[ast.expr]:
    for value in loader.collate.returns if loader.collate is not None else ():
        if value is not None:
            yield value


def _pins(loader: Loader, view: View) -> bool:
    """Whether a loader pins its batches, at least where there is a GPU."""
    node = loader["pin_memory"].node
    for value in view.origins(node) if node is not None else ():
        if isinstance(value, ast.Constant) and value.value is True:
            return True
        if isinstance(value, ast.Call) and view.resolve(value.func) == "torch.cuda.is_available":
            return True
    return False


def _is_there(loader: Loader, view: View) -> bool:
    """Whether its data was copied to the GPU before: `NeighborLoader(graph.to(device))`."""
    node = loader["dataset"].node
    return any(
        isinstance(each, ast.Call)
        and isinstance(each.func, ast.Attribute)
        and each.func.attr in _PARAMETERS
        for each in (view.origins(node) if node is not None else ())
    )


def _calls(body: list[ast.stmt]) -> Iterator[ast.Call]:
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Call):
                yield node


def _copies(call: ast.Call, view: View) -> bool:
    """Whether it copies to a GPU, and waits for it."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in _PARAMETERS:
        return False
    given = view.call_arguments(call, _PARAMETERS[call.func.attr])
    if not given["non_blocking"].absent:
        return False
    if call.func.attr == "cuda":
        return True
    if isinstance(given["dtype"].value, bool):
        return False  # .to(other, True), .to(dtype, True): the second is non_blocking
    return given["device"].node is not None and _is_gpu(given["device"].node, view)


def _is_gpu(node: ast.expr, view: View) -> bool:
    """Whether a device is, or may well be, a GPU; types and other tensors are none."""
    shown = " ".join(text_of(each) for each in (node, *view.origins(node)))
    if "cuda" in shown:
        return True
    if any(
        each in shown for each in ("cpu", "xla", "mps", "dtype", "float", "long", "int", "bool")
    ):
        return False
    return text_of(node).rpartition(".")[2].lower() in (
        "device",
        "gpu",
        "dev",
        "local_rank",
        "rank",
    )


@dataclass(frozen=True, slots=True)
class _Batch:
    """The names of the batch in the body of a loop, and those of its parts."""

    whole: set[str]
    parts: set[str]
    anew: dict[str, int]  # names that are given something else: from which line on

    def has(self, call: ast.Call) -> bool:
        """Whether what is copied is the batch or a part of it, and nothing computed from it."""
        if not isinstance(call.func, ast.Attribute):
            return False
        node = call.func.value
        if not _is_part(node, self.whole | self.parts):
            return False
        while isinstance(node, (ast.Subscript, ast.Attribute)):
            node = node.value
        assert isinstance(node, ast.Name)
        return call.lineno <= self.anew.get(node.id, call.lineno)

    def is_part(self, call: ast.Call) -> bool:
        """Whether it is a part of a batch as collate functions make them: `batch[0]`."""
        assert isinstance(call.func, ast.Attribute)
        node = call.func.value
        if isinstance(node, ast.Name):
            return node.id in self.parts
        while isinstance(node, ast.Subscript):
            node = node.value
        return isinstance(node, ast.Name)


def _batch(loop: LoaderLoop) -> _Batch:
    """Return the names of the batch and its parts: the loop's own, and what they are unpacked
    to."""
    whole, parts = _of_target(loop.node)
    anew: dict[str, int] = {}
    for statement in loop.body:
        for node in ast.walk(statement):
            match node:
                case ast.Assign(targets=[target], value=value):
                    names = {e.id for e in ast.walk(target) if isinstance(e, ast.Name)}
                    if not _is_part(value, whole | parts):
                        for name in names if not isinstance(target, ast.Subscript) else ():
                            anew[name] = min(node.lineno, anew.get(name, node.lineno))
                    elif isinstance(value, ast.Name) and isinstance(target, ast.Name):
                        (whole if value.id in whole else parts).update(names)
                    else:
                        parts |= names
                case ast.comprehension(target=target, iter=source) if _about(source, whole | parts):
                    parts |= {e.id for e in ast.walk(target) if isinstance(e, ast.Name)}
                case _:
                    pass
    return _Batch(whole, parts, anew)


def _of_target(loop: LoopNode) -> tuple[set[str], set[str]]:
    """Return the names a loop has for the batch, and for its parts: `for i, (x, y) in
    enumerate(`."""
    target = loop.target
    around = {each.id for each in ast.walk(loop.iter) if isinstance(each, ast.Name)}
    whole = [target]
    if isinstance(target, ast.Tuple) and not around.isdisjoint({"enumerate", "zip"}):
        whole = target.elts[1:] if "zip" not in around else target.elts
    parts = [each for each in whole if not isinstance(each, ast.Name)]
    return (
        {each.id for each in whole if isinstance(each, ast.Name)},
        {e.id for each in parts for e in ast.walk(each) if isinstance(e, ast.Name)},
    )


def _is_part(node: ast.expr, names: set[str]) -> bool:
    """Whether a value is of the batch as it came: `batch[0]`, `batch["x"], batch["y"]`."""
    if isinstance(node, ast.Tuple):
        return all(_is_part(each, names) for each in node.elts)
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        node = node.value
    return isinstance(node, ast.Name) and node.id in names


def _about(node: ast.expr, names: set[str]) -> bool:
    """Whether a comprehension goes over the batch: `batch`, `batch.items()`."""
    while isinstance(node, (ast.Call, ast.Attribute, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return isinstance(node, ast.Name) and node.id in names


RULE = Rule(
    code="AF505",
    name="pinned-but-blocking",
    severity=SLOW,
    confidence=LIKELY,
    find=find,
)
