"""A sample that carries the graph of a model's gradients."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.definitions import Function
from ..source.view import View
from ..source.wording import text_of
from ..source.worker_code import WorkerCode
from .base import FREEZE, LIKELY, POSSIBLE, Hit, Rule

# Layers of torch.nn that have weights: what they give has a graph.
LAYERS = frozenset(
    {"Linear", "Bilinear", "Embedding", "EmbeddingBag", "LSTM", "GRU", "RNN", "LSTMCell", "GRUCell"}
    | {f"{kind}{n}d" for kind in ("Conv", "ConvTranspose", "BatchNorm") for n in (1, 2, 3)}
    | {"LayerNorm", "GroupNorm", "MultiheadAttention", "Transformer", "TransformerEncoder"}
    | {"TransformerEncoderLayer", "PReLU", "Parameter"}
)
_MODELS = ("torchvision.models.", "timm.create_model", "torch.hub.load")
# Any of these in what loads the sample: the graph is cut, somewhere.
_CUTS = frozenset(
    {"detach", "detach_", "numpy", "item", "tolist", "no_grad", "inference_mode", "data", "argmax"}
    | {"set_grad_enabled", "requires_grad_", "requires_grad"}
)
# What is read off a tensor, and has no graph; `torch.autograd.grad` has none but if asked to.
_READ_OFF = frozenset(
    {"grad", "shape", "size", "dtype", "device", "ndim", "len", "float", "int", "bool", "str"}
    | {"backward", "print", "isinstance", "type"}
)
_STEPS = 4  # from variable to variable


def find(view: View) -> Iterator[Hit]:
    for code in view.worker_code:
        if code.called or code.role in ("init", "transform"):
            continue
        for node in code.function.nodes():
            what = _leaf(node) or _with_weights(node, code.function, view)
            if what and _gets_out(node, code.function):
                yield Hit(node, _words(what, code), LIKELY if code.workers else POSSIBLE)


def _gets_out(node: ast.AST, function: Function) -> bool:
    """Say whether a value is in what the function returns or yields: at once, or through variables
    it is put into. What is computed from it counts, what is only read off it does not."""
    assert isinstance(node, ast.Call)
    names = set[str]()
    match node:
        case ast.Call(func=ast.Attribute(attr="requires_grad_", value=changed)):
            names.add(text_of(changed))  # in place
        case _:
            pass
    nodes = list(function.nodes())
    for _ in range(_STEPS):
        before = len(names)
        for each in nodes:
            match each:
                case ast.Assign(targets=targets, value=value) if _in(value, node, names):
                    names |= {name for target in targets for name in _owners(target)}
                case (
                    ast.AnnAssign(target=target, value=ast.expr() as value)
                    | ast.AugAssign(target=target, value=value)
                    | ast.For(target=target, iter=value)
                    | ast.NamedExpr(target=target, value=value)
                ) if _in(value, node, names):
                    names |= _owners(target)
                case ast.Call(
                    func=ast.Attribute(attr="append" | "extend" | "add" | "update", value=owner),
                    args=[value, *_],
                ) if _in(value, node, names):
                    names |= _owners(owner)
                case _:
                    pass
        if len(names) == before:
            break
    given = [each for each in function.returns if each is not None]
    given += [e.value for e in nodes if isinstance(e, (ast.Yield, ast.YieldFrom)) and e.value]
    return any(_in(each, node, names) for each in given)


def _owners(target: ast.expr) -> set[str]:
    """Give the names that an assignment changes: `a, b`, `sample` of `sample["x"]`, `self.x`."""
    if isinstance(target, (ast.Tuple, ast.List)):
        return {name for each in target.elts for name in _owners(each)}
    while isinstance(target, (ast.Subscript, ast.Starred)):
        target = target.value
    return {text_of(target)}


def _in(value: ast.expr, node: ast.AST, names: set[str]) -> bool:
    """Say whether a value is, holds or is computed from a tensor, with its graph."""
    if value is node:
        return True
    if isinstance(value, (ast.Name, ast.Attribute)) and text_of(value) in names:
        return True
    match value:
        case ast.Attribute(attr=name) if name in _CUTS | _READ_OFF:
            return False
        case ast.Call(func=ast.Name(id=name)) if name in _READ_OFF:
            return False
        case ast.Call(func=ast.Attribute(attr=name)) if name in _CUTS | _READ_OFF:
            return name == "requires_grad_" and _in(value.func, node, names)
        case ast.Compare():
            return False
        case _:
            pass
    return any(
        _in(each.value if isinstance(each, ast.keyword) else each, node, names)
        for each in _expressions(value)
    )


def _expressions(node: ast.AST) -> Iterator[ast.expr | ast.keyword]:
    for each in ast.iter_child_nodes(node):
        if isinstance(each, (ast.expr, ast.keyword)):
            yield each
        elif isinstance(each, ast.comprehension):
            yield each.iter


def _words(what: str, code: WorkerCode) -> str:
    place = f"{what} in `{code.function.name}`"
    if code.only_ours:
        return f"{place} gives a tensor with a graph, which cannot be sent from a worker"
    return (
        f"{place} gives a tensor with a graph: it cannot be sent from a worker. The default collate"
        " function fails; with another one, the loop waits for ever"
    )


def _leaf(node: ast.AST) -> str:
    """Give what makes a tensor that asks for gradients, if its graph has begun."""
    match node:
        case ast.Call(func=ast.Attribute(attr="tensor" | "ones" | "zeros" | "randn" | "rand")):
            wants = any(
                each.arg == "requires_grad"
                and isinstance(each.value, ast.Constant)
                and each.value.value is True
                for each in node.keywords
            )
            return "`requires_grad=True`" if wants else ""
        case ast.Call(func=ast.Attribute(attr="requires_grad_"), args=[], keywords=[]):
            return "`requires_grad_()`"
        case _:
            return ""


def _with_weights(node: ast.AST, function: Function, view: View) -> str:
    """Give the model that is called, if what it gives has a graph and keeps it."""
    match node:
        case ast.Call(func=ast.Attribute() | ast.Name() as called, args=[_, *_]):
            pass
        case _:
            return ""
    if not _has_weights(called, view) or _cut(node, function, view):
        return ""
    return f"`{text_of(called)}(...)`"


def _has_weights(node: ast.expr, view: View, depth: int = 0) -> bool:
    for value in view.origins(node):
        while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
            if value.func.attr not in ("eval", "to", "cuda", "cpu", "half", "float", "train"):
                break
            value = value.func.value
        if not isinstance(value, ast.Call):
            continue
        name = view.resolve(value.func) or ""
        if name.startswith("torch.nn.") and name.rpartition(".")[2] in LAYERS:
            return True
        if name == "torch.nn.Sequential" and depth < 2:
            return any(_is_layer(each, view, depth) for each in value.args)
        if name.startswith(_MODELS) or name.endswith("Model.from_pretrained"):
            return True
        made = (
            view.class_of(value.func) if isinstance(value.func, (ast.Name, ast.Attribute)) else None
        )
        if made is not None and made.descends_from("torch.nn.Module", "torch.nn.modules.Module"):
            return any(
                each.value is not None and depth < 2 and _is_layer(each.value, view, depth)
                for places in made.attributes.values()
                for each in places
            )
    return False


def _is_layer(node: ast.expr, view: View, depth: int) -> bool:
    return isinstance(node, ast.Call) and _has_weights(node, view, depth + 1)


def _cut(node: ast.AST, function: Function, view: View) -> bool:
    """Say whether the graph is cut, as far as the function and those around it show."""
    around = view.module.class_around(node)
    nodes = list(ast.walk(around or function.node))
    attributes = {each.attr for each in nodes if isinstance(each, ast.Attribute)}
    names = {each.id for each in nodes if isinstance(each, ast.Name)}
    return (
        not attributes.isdisjoint(_CUTS)
        or not names.isdisjoint({"no_grad", "inference_mode"})
        or bool(view.calls("torch.set_grad_enabled"))
    )


RULE = Rule(
    code="AF411",
    name="tensor-with-a-graph",
    severity=FREEZE,
    confidence=LIKELY,
    title="A worker gives tensors that are part of a graph",
    what="""
    Code that runs in workers calls a model or layer with weights and returns its output with the
    graph of gradients, or makes tensors with `requires_grad=True`.
    """,
    why="""
    Such a tensor cannot be sent to another process: `Cowardly refusing to serialize non-leaf tensor
    which requires_grad`. With a collate function of your own that happens in a background thread of
    the worker, which drops the batch, and the loop waits for ever (torch 2.13;
    [pytorch_geometric#1967](https://github.com/pyg-team/pytorch_geometric/issues/1967),
    [piper#472](https://github.com/rhasspy/piper/issues/472)). The default collate function fails
    with `stack(): functions with out=... arguments don't support automatic differentiation`
    ([pytorch#82411](https://github.com/pytorch/pytorch/issues/82411)).
    """,
    instead="""
    Call the model under `torch.no_grad()`, or return `output.detach()`. Better still, run the model
    on the whole batch in the main process, or once beforehand for all samples. Ask for gradients
    where they are needed: `batch.requires_grad_()` in the loop.
    """,
    not_flagged="""
    Tensors that the function keeps for itself, as to return their `grad`. Models under
    `torch.no_grad()` or `torch.inference_mode()`, outputs that are detached or made
    arrays or numbers, transforms without weights, and loaders without workers.
    """,
    bad="""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Encoded(Dataset):
    def __init__(self, rows):
        self.rows = rows
        self.encoder = nn.Linear(64, 8)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.encoder(torch.as_tensor(self.rows[index]))


def load(rows):
    return DataLoader(Encoded(rows), batch_size=8, num_workers=4)
""",
    good="""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Encoded(Dataset):
    def __init__(self, rows):
        self.rows = rows
        self.encoder = nn.Linear(64, 8)

    def __len__(self):
        return len(self.rows)

    @torch.no_grad()
    def __getitem__(self, index):
        return self.encoder(torch.as_tensor(self.rows[index]))


def load(rows):
    return DataLoader(Encoded(rows), batch_size=8, num_workers=4)
""",
    also_bad=(
        """
import torch
from torch.utils.data import DataLoader, Dataset


class Points(Dataset):
    def __init__(self, points):
        self.points = points

    def __len__(self):
        return len(self.points)

    def __getitem__(self, index):
        x = torch.as_tensor(self.points[index])
        x.requires_grad_()
        sample = {"y": 2 * x}
        return sample


def load(points):
    return DataLoader(Points(points), batch_size=8, num_workers=4)
""",
        """
import torch
from torch.utils.data import DataLoader, Dataset


class Points(Dataset):
    def __init__(self, points):
        self.points = points

    def __len__(self):
        return len(self.points)

    def __getitem__(self, idx):
        x = torch.tensor(self.points[idx], requires_grad=True)
        return x, idx


def main(cfg, points):
    loader = DataLoader(Points(points), batch_size=cfg.bs, num_workers=cfg.num_workers)
    for x, idx in loader:
        print(x.shape)
""",
        """
import torch
import torch.nn as nn
import torch.utils.data as data


class Encoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(3, width, 3)

    def forward(self, x):
        return self.conv(x)


class Features(data.Dataset):
    def __init__(self, images, encoder):
        self.images = images
        self.encoder = encoder

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return self.features(self.images[i])

    def features(self, image):
        return self.encoder(image[None])[0]


def build(images):
    encoder = Encoder(16).eval()
    return data.DataLoader(Features(images, encoder), collate_fn=torch.cat, num_workers=2)
""",
    ),
    also_good=(
        """
import torch
from torch.utils.data import DataLoader, Dataset


class Slopes(Dataset):
    def __init__(self, points):
        self.points = points

    def __len__(self):
        return len(self.points)

    def __getitem__(self, index):
        x = torch.tensor([float(self.points[index])], requires_grad=True)
        y = x**2
        y.sum().backward()
        other = torch.ones(3, requires_grad=True)
        slope = torch.autograd.grad((other**3).sum(), other)[0]
        return x.grad, slope, y.item()


def load(points):
    return DataLoader(Slopes(points), batch_size=8, num_workers=4)
""",
        """
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pooled(Dataset):
    def __init__(self, images):
        self.images = images
        self.shrink = nn.Sequential(nn.AvgPool2d(2), nn.Flatten(0))

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.shrink(torch.as_tensor(self.images[index]))


def load(images):
    return DataLoader(Pooled(images), batch_size=8, num_workers=4)
""",
        """
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Encoded(Dataset):
    def __init__(self, rows, width):
        self.rows = rows
        self.encoder = nn.Linear(64, width)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.encode(index).numpy()

    def encode(self, index):
        with torch.inference_mode():
            return self.encoder(torch.as_tensor(self.rows[index]))


def load(rows):
    return DataLoader(Encoded(rows, 8), batch_size=8, num_workers=4)
""",
    ),
    find=find,
    follows=True,
)
