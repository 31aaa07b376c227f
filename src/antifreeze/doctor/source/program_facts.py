"""Facts about the program as a whole: ranks, start method, what runs on import."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from . import library_names
from .syntax.module import Module
from .syntax.node_text import last_name, text_of
from .syntax.scopes import FunctionNode

if TYPE_CHECKING:
    from .view import View

# Calls that only programs with several ranks make.
_RANKED = frozenset(
    {
        "torch.distributed.init_process_group",
        "torch.nn.parallel.DistributedDataParallel",
        "torch.distributed.fsdp.FullyShardedDataParallel",
        library_names.DISTRIBUTED_SAMPLER,
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


def distributed_evidence(view: View) -> str:
    """Return what shows that a file is of a program with several ranks; '' if nothing does."""
    for call in view.module.nodes(ast.Call):
        name = view.resolve(call.func) or ""
        short = name.rpartition(".")[2]
        if name in _RANKED:
            return f"{short}, line {call.lineno}"
        if name in _TRAINERS and _several(call, view):
            return f"{short} with a strategy or several devices, line {call.lineno}"
    for node in view.module.nodes(ast.Constant):
        if (
            isinstance(node.value, str)
            and node.value in _RANK_VARIABLES
            and _is_of_environment(node, view)
        ):
            return f"{node.value}, line {node.lineno}"
    return ""


def _is_of_environment(node: ast.Constant, view: View) -> bool:
    """Whether a word is the name of a variable of the environment: `os.environ["RANK"]`."""
    match view.module.scopes.parents.get(node):
        case ast.Subscript(value=owner, slice=key) if key is node:
            return view.resolve(owner) == "os.environ"
        case ast.Call(func=func, args=[first, *_]) if first is node:
            return (view.resolve(func) or "").startswith(("os.environ.", "os.getenv"))
        case ast.Compare(left=left, ops=[ast.In() | ast.NotIn()], comparators=[owner]):
            return left is node and view.resolve(owner) == "os.environ"
        case _:
            return False


def _several(trainer: ast.Call, view: View) -> bool:
    for keyword in trainer.keywords:
        value = view.constant(keyword.value)
        if keyword.arg == "strategy" and value not in ("auto", "single_device", None):
            return True
        if keyword.arg in ("devices", "num_nodes", "gpus") and isinstance(value, int) and value > 1:
            return True
    return False


def start_method_set(view: View) -> str:
    """Return the start method that a file sets for all: spawn, forkserver, fork; or '', also where
    it is set on a condition, such as the platform."""
    for call in view.calls("multiprocessing.set_start_method"):
        if any(_is_condition(each) for each in view.module.ancestors(call)):
            continue
        node = call.args[0] if call.args else None
        for keyword in call.keywords:
            if keyword.arg == "method":
                node = keyword.value
        value = view.constant(node) if node is not None else None
        if isinstance(value, str):
            return value
    return ""


def _is_condition(node: ast.AST) -> bool:
    """Whether a node is an `if` that may leave the start method as it is."""
    return (
        isinstance(node, ast.If)
        and not is_main_guard(node)
        and "start_method" not in text_of(node.test)  # `if get_start_method() != "spawn"`
    )


def is_main_guard(node: ast.AST) -> bool:
    """Whether a node is `if __name__ == "__main__":`, perhaps with `and ...`."""
    match node:
        case ast.If(test=ast.BoolOp(op=ast.And(), values=parts)):
            return any(map(_asks_for_main, parts))
        case ast.If(test=test):
            return _asks_for_main(test)
        case _:
            return False


def _asks_for_main(test: ast.expr) -> bool:
    match test:
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
            names = {each.id for each in (left, right) if isinstance(each, ast.Name)}
            values = {each.value for each in (left, right) if isinstance(each, ast.Constant)}
            return "__name__" in names and "__main__" in values
        case _:
            return False


_EXPECT_FAILURE = frozenset({"raises", "assertRaises", "assertRaisesRegex", "suppress"})


def is_expected_to_fail(node: ast.AST, module: Module) -> bool:
    """Whether a node is under `with pytest.raises(...)` or the like: it is wrong on purpose."""
    for each in module.ancestors(node):
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return False
        if isinstance(each, (ast.With, ast.AsyncWith)):
            for item in each.items:
                called = item.context_expr
                if isinstance(called, ast.Call):
                    name = last_name(called.func)
                    if name in _EXPECT_FAILURE:
                        return True
    return False


def run_on_import(view: View) -> frozenset[FunctionNode]:
    """Return the functions of a file that run when it is imported: called at the top and not under
    the guard, or by one that is."""
    module = view.module
    by_name: dict[str, list[FunctionNode]] = {}
    every: list[FunctionNode] = [*module.nodes(ast.FunctionDef)]
    every += module.nodes(ast.AsyncFunctionDef)
    for each in every:
        by_name.setdefault(module.qualified(each), []).append(each)
    called_in: dict[FunctionNode | None, list[str]] = {}
    for call in module.nodes(ast.Call):
        name = view.resolve(call.func)
        if name in by_name and not is_guarded(call, module):
            called_in.setdefault(module.function_around(call), []).append(name)
    found: set[FunctionNode] = set()
    queue = list(called_in.get(None, ()))
    while queue:
        for function in by_name.pop(queue.pop(), ()):
            found.add(function)
            queue += called_in.get(function, ())
    return frozenset(found)


def is_guarded(node: ast.AST, module: Module) -> bool:
    """Whether a node runs under the main guard only."""
    return any(
        is_main_guard(each) and _in_body(node, each, module) for each in module.ancestors(node)
    )


def _in_body(node: ast.AST, guard: ast.AST, module: Module) -> bool:
    inner = node
    for each in module.ancestors(node):
        if each is guard:
            return isinstance(guard, ast.If) and inner in guard.body
        inner = each
    return False
