"""Pinned batches that are copied to the GPU while everything waits."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.loaders import Loader
from ..source.loops import LoaderLoop
from ..source.view import View
from .base import LIKELY, SLOW, Fix, Hit, Rule, SetArgument


def find(view: View) -> Iterator[Hit]:
    told = set[ast.Call]()
    for loop in view.loops:
        if loop.loader is None or not _pins(loop.loader, view):
            continue
        batch = _names(loop)
        for call in _calls(loop.body):
            if call in told or not _copies(call, view) or not _of_the_batch(call, batch):
                continue
            told.add(call)
            yield Hit(
                call,
                f"`{ast.unparse(call)}` waits until the copy is done, though the loader pins its"
                " batches: the copy and the work of the GPU do not overlap",
                fix=Fix("pass non_blocking=True", (SetArgument(call, "non_blocking", "True"),)),
            )


def _pins(loader: Loader, view: View) -> bool:
    """Say whether a loader pins its batches, at least where there is a GPU."""
    node = loader["pin_memory"].node
    for value in view.origins(node) if node is not None else ():
        if isinstance(value, ast.Constant) and value.value is True:
            return True
        if isinstance(value, ast.Call) and view.resolve(value.func) == "torch.cuda.is_available":
            return True
    return False


def _calls(body: list[ast.stmt]) -> Iterator[ast.Call]:
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Call):
                yield node


def _copies(call: ast.Call, view: View) -> bool:
    """Say whether it copies to a GPU, and waits for it."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in ("to", "cuda"):
        return False
    given = view.call_arguments(call, ("device", "dtype", "non_blocking"))
    if not given["non_blocking"].absent:
        return False
    if call.func.attr == "cuda":
        return True
    return given["device"].node is not None and _is_gpu(given["device"].node, view)


def _is_gpu(node: ast.expr, view: View) -> bool:
    """Say whether a device is, or may well be, a GPU; types and other tensors are none."""
    shown = " ".join(ast.unparse(each) for each in (node, *view.origins(node)))
    if "cuda" in shown:
        return True
    if any(
        each in shown for each in ("cpu", "xla", "mps", "dtype", "float", "long", "int", "bool")
    ):
        return False
    return ast.unparse(node).rpartition(".")[2].lower() in (
        "device",
        "gpu",
        "dev",
        "local_rank",
        "rank",
    )


def _of_the_batch(call: ast.Call, names: set[str]) -> bool:
    """Say whether what is copied is the batch or a part of it, and nothing computed from it."""
    return isinstance(call.func, ast.Attribute) and _is_part(call.func.value, names)


def _names(loop: LoaderLoop) -> set[str]:
    """Give the names of the batch and its parts: the loop's own, and what they are unpacked to."""
    names = {each.id for each in ast.walk(loop.node.target) if isinstance(each, ast.Name)}
    for statement in loop.body:
        for node in ast.walk(statement):
            match node:
                case ast.Assign(targets=[target], value=value) if _is_part(value, names):
                    names |= {e.id for e in ast.walk(target) if isinstance(e, ast.Name)}
                case ast.comprehension(target=target, iter=source) if _about(source, names):
                    names |= {e.id for e in ast.walk(target) if isinstance(e, ast.Name)}
                case _:
                    pass
    return names


def _is_part(node: ast.expr, names: set[str]) -> bool:
    """Say whether a value is of the batch as it came: `batch[0]`, `batch["x"], batch["y"]`."""
    if isinstance(node, ast.Tuple):
        return all(_is_part(each, names) for each in node.elts)
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        node = node.value
    return isinstance(node, ast.Name) and node.id in names


def _about(node: ast.expr, names: set[str]) -> bool:
    """Say whether a comprehension goes over the batch: `batch`, `batch.items()`."""
    while isinstance(node, (ast.Call, ast.Attribute, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return isinstance(node, ast.Name) and node.id in names


RULE = Rule(
    code="AF505",
    name="pinned-but-blocking",
    severity=SLOW,
    confidence=LIKELY,
    title="Pinned batches are copied to the GPU one step at a time",
    what="""
    In a loop over a loader with `pin_memory=True`, `.to(device)` or `.cuda()` of the batch without
    `non_blocking=True`.
    """,
    why="""
    Pinning costs a thread and a copy of every batch. What it buys is that the copy to the GPU can
    run while Python goes on to queue the model's kernels, and that takes `non_blocking=True`
    ([documented](https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html)). Without
    it Python waits at every `.to()`. What follows on the GPU waits for the copy by itself.
    """,
    instead="""
    `batch.to(device, non_blocking=True)`. `antifreeze check --fix` does it.
    """,
    not_flagged="""
    Loaders that do not pin, copies to the CPU or to another type, and tensors that are computed in
    the loop.
    """,
    bad="""
from torch.utils.data import DataLoader


def train(dataset, model, device):
    loader = DataLoader(dataset, batch_size=32, num_workers=4, pin_memory=True)
    for images, labels in loader:
        images = images.to(device, non_blocking=True)
        labels = labels.to(device)
        model.step(images, labels)
""",
    good="""
from torch.utils.data import DataLoader


def train(dataset, model, device):
    loader = DataLoader(dataset, batch_size=32, num_workers=4, pin_memory=True)
    for images, labels in loader:
        images = images.to(device, non_blocking=True)
        labels = labels.to(device, non_blocking=True)
        model.step(images, labels)
""",
    also_bad=(
        """
import torch
import torch.utils.data as data
from tqdm.auto import tqdm


class Trainer:
    def __init__(self, dataset, model):
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        options = {"num_workers": 4, "pin_memory": True}
        self.loader = data.DataLoader(dataset, batch_size=32, **options)
        self.model = model

    def epoch(self):
        for step, batch in enumerate(tqdm(self.loader)):
            batch = {k: v.to(self.device) for k, v in batch.items()}
            self.model.step(step, batch)
""",
        """
import torch
from torch.utils.data import DataLoader

use_cuda = torch.cuda.is_available()


def evaluate(dataset, model, device):
    test_loader = DataLoader(dataset, batch_size=64, num_workers=2, pin_memory=use_cuda)
    for batch in test_loader:
        inputs, labels = batch
        model.score(inputs.to(device), labels.to(device))
""",
        """
import torch
from torch.utils.data import DataLoader
from tqdm import tqdm

import config


def get_loaders(train, test, pin_memory=True):
    train_loader = DataLoader(train, batch_size=64, num_workers=2, pin_memory=pin_memory)
    test_loader = DataLoader(test, batch_size=64, num_workers=2)
    return train_loader, test_loader


def main(train, test, model):
    train_loader, test_loader = get_loaders(train, test)
    for x, y in test_loader:
        model.score(x.to(config.DEVICE), y.to(config.DEVICE))
    bar = tqdm(train_loader, leave=True)
    for number, batch in enumerate(bar):
        x, y = batch["x"], batch["y"]
        model.step(x.to(device=config.DEVICE, dtype=torch.float32), y)
""",
        """
from torch.utils.data import DataLoader


def run(loader, model):
    for data, target in loader:
        model.step(data.cuda(), target.cuda())


def main(dataset, model):
    train_loader = DataLoader(dataset, 64, shuffle=True, num_workers=2, pin_memory=True)
    run(train_loader, model)
""",
    ),
    also_good=(
        """
import torch
from torch.utils.data import DataLoader


def train(dataset, model, device):
    loader = DataLoader(dataset, batch_size=32, num_workers=4, pin_memory=True)
    for batch in loader:
        images = batch["image"].to(torch.float32)
        noise = torch.randn(images.shape).to(device)
        images = images.to("cpu")
        model.step(images, noise)
""",
        """
from torch.utils.data import DataLoader


def train(dataset, model, device):
    loader = DataLoader(dataset, batch_size=32, num_workers=4)
    for images, labels in loader:
        model.step(images.to(device), labels.to(device))
""",
    ),
    find=find,
)
