"""Pinned batches that are copied to the GPU while everything waits."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source import library_names
from ..source.loaders import Loader
from ..source.syntax.node_text import text_of
from ..source.view import View
from ._helpers.batch_parts import batch_names_in
from .rule import LIKELY, POSSIBLE, SLOW, Fix, Hit, Rule, SetArgument

# Of a tensor's methods, by place; `.to` also takes another tensor, or a type, and non_blocking.
_PARAMETERS = {"to": ("device", "dtype", "non_blocking"), "cuda": ("device", "non_blocking")}


def find(view: View) -> Iterator[Hit]:
    reported = set[ast.Call]()
    for loop in view.loops:
        if loop.loader is None or not _pins(loop.loader, view) or _is_there(loop.loader, view):
            continue
        batch = batch_names_in(loop)
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


RULE = Rule(
    code="AF505",
    name="pinned-but-blocking",
    severity=SLOW,
    confidence=LIKELY,
    find=find,
)
