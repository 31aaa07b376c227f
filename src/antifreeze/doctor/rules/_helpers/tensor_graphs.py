"""Expressions that make a tensor with the graph of its gradients."""

from __future__ import annotations

import ast

from ...source.definitions import Function
from ...source.syntax.node_text import text_of
from ...source.view import View

# Layers of torch.nn that have weights: what they give has a graph.
LAYERS = frozenset(
    {"Linear", "Bilinear", "Embedding", "EmbeddingBag", "LSTM", "GRU", "RNN", "LSTMCell", "GRUCell"}
    | {f"{kind}{n}d" for kind in ("Conv", "ConvTranspose", "BatchNorm") for n in (1, 2, 3)}
    | {"LayerNorm", "GroupNorm", "MultiheadAttention", "Transformer", "TransformerEncoder"}
    | {"TransformerEncoderLayer", "PReLU", "Parameter"}
)

_MODELS = ("torchvision.models.", "timm.create_model", "torch.hub.load")

# Any of these in what loads the sample: the graph is cut, somewhere.
GRAPH_CUTS = frozenset(
    {"detach", "detach_", "numpy", "item", "tolist", "no_grad", "inference_mode", "data", "argmax"}
    | {"set_grad_enabled", "requires_grad_", "requires_grad"}
)


def leaf_tensor(node: ast.AST) -> str:
    """Return what makes a tensor that asks for gradients, if its graph has begun."""
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


def call_of_model(node: ast.AST, function: Function, view: View) -> str:
    """Return the model that is called, if what it gives has a graph and keeps it."""
    match node:
        case ast.Call(func=ast.Attribute() | ast.Name() as called, args=[_, *_]):
            pass
        case _:
            return ""
    if not _has_weights(called, view) or _is_cut(node, function, view):
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


def _is_cut(node: ast.AST, function: Function, view: View) -> bool:
    """Whether the graph is cut, as far as the function and those around it show."""
    around = view.module.class_around(node)
    nodes = list(ast.walk(around or function.node))
    attributes = {each.attr for each in nodes if isinstance(each, ast.Attribute)}
    names = {each.id for each in nodes if isinstance(each, ast.Name)}
    return (
        not attributes.isdisjoint(GRAPH_CUTS)
        or not names.isdisjoint({"no_grad", "inference_mode"})
        or bool(view.calls("torch.set_grad_enabled"))
    )
