"""What the source says about the program as a whole: ranks, start method, what runs on import."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from .module import Module

if TYPE_CHECKING:
    from .view import View

# Calls that only programs with several ranks make.
_RANKED = frozenset(
    {
        "torch.distributed.init_process_group",
        "torch.nn.parallel.DistributedDataParallel",
        "torch.distributed.fsdp.FullyShardedDataParallel",
        "torch.utils.data.DistributedSampler",
        "accelerate.Accelerator",
        "deepspeed.initialize",
        "horovod.torch.init",
        "ray.train.torch.prepare_data_loader",
        "ray.train.torch.TorchTrainer",
    }
)
_TRAINERS = frozenset({"lightning.pytorch.Trainer", "lightning.Fabric", "lightning.fabric.Fabric"})
_RANK_VARIABLES = frozenset({"LOCAL_RANK", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"})
FORKSERVER_BY_DEFAULT = (3, 14)  # on Linux: https://docs.python.org/3/whatsnew/3.14.html


def ranks_shown_by(view: View) -> str:
    """Say what shows that a file is of a program with several ranks; '' if nothing does."""
    for call in view.module.nodes(ast.Call):
        name = view.resolve(call.func) or ""
        short = name.rpartition(".")[2]
        if name in _RANKED:
            return f"{short}, line {call.lineno}"
        if name in _TRAINERS and _several(call, view):
            return f"{short} with a strategy or several devices, line {call.lineno}"
    for node in view.module.nodes(ast.Constant):
        if node.value in _RANK_VARIABLES and isinstance(node.value, str):
            return f"{node.value}, line {node.lineno}"
    return ""


def _several(trainer: ast.Call, view: View) -> bool:
    for keyword in trainer.keywords:
        value = view.constant(keyword.value)
        if keyword.arg == "strategy" and value not in ("auto", "single_device", None):
            return True
        if keyword.arg in ("devices", "num_nodes", "gpus") and isinstance(value, int) and value > 1:
            return True
    return False


def start_method_set(view: View) -> str:
    """Give the start method that a file sets for all: spawn, forkserver, fork; or ''."""
    for call in view.calls("multiprocessing.set_start_method"):
        node = call.args[0] if call.args else None
        for keyword in call.keywords:
            if keyword.arg == "method":
                node = keyword.value
        value = view.constant(node) if node is not None else None
        if isinstance(value, str):
            return value
    return ""


def is_main_guard(node: ast.AST) -> bool:
    """Say whether a node is `if __name__ == "__main__":`."""
    match node:
        case ast.If(test=ast.Compare(left=left, ops=[ast.Eq()], comparators=[right])):
            names = {each.id for each in (left, right) if isinstance(each, ast.Name)}
            values = {each.value for each in (left, right) if isinstance(each, ast.Constant)}
            return "__name__" in names and "__main__" in values
        case _:
            return False


_EXPECT_FAILURE = frozenset({"raises", "assertRaises", "assertRaisesRegex", "suppress"})


def is_expected_to_fail(node: ast.AST, module: Module) -> bool:
    """Say whether a node is under `with pytest.raises(...)` or the like: it is wrong on purpose."""
    for each in module.ancestors(node):
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return False
        if isinstance(each, (ast.With, ast.AsyncWith)):
            for item in each.items:
                called = item.context_expr
                if isinstance(called, ast.Call):
                    name = getattr(called.func, "attr", getattr(called.func, "id", ""))
                    if name in _EXPECT_FAILURE:
                        return True
    return False


def has_main_guard(module: Module) -> bool:
    return any(is_main_guard(each) for each in module.nodes(ast.If))


def runs_on_import(node: ast.AST, view: View, depth: int = 0) -> bool:
    """Say whether a node runs when the file is imported, as a spawned worker does with the script:
    at the top and not under the guard, or in a function that is called there."""
    module = view.module
    if any(is_main_guard(each) and _in_body(node, each, module) for each in module.ancestors(node)):
        return False
    function = module.function_around(node)
    if function is None:
        return True
    if depth > 3:
        return False
    name = module.qualified(function)
    return any(
        view.resolve(call.func) == name and runs_on_import(call, view, depth + 1)
        for call in module.nodes(ast.Call)
    )


def _in_body(node: ast.AST, guard: ast.AST, module: Module) -> bool:
    inner = node
    for each in module.ancestors(node):
        if each is guard:
            return isinstance(guard, ast.If) and inner in guard.body
        inner = each
    return False
