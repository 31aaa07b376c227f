"""Values that are put on a GPU, and calls that start CUDA."""

from __future__ import annotations

import ast

from ...source.step_budget import cached_walk
from ...source.view import View

_DEEPEST = 4
# Of torch.cuda: what starts CUDA in the process that calls it.
_STARTS_CUDA = frozenset(
    f"torch.cuda.{name}"
    for name in (
        *(
            "synchronize",
            "current_device",
            "set_device",
            "current_stream",
            "Stream",
            "mem_get_info",
        ),
        *("get_device_name", "get_device_properties", "get_device_capability", "init"),
        *("FloatTensor", "LongTensor", "ByteTensor", "HalfTensor", "IntTensor", "DoubleTensor"),
    )
)


@cached_walk
def is_cuda(node: ast.expr, view: View, depth: int = 0) -> bool:
    """Whether a device is, or may be chosen to be, a GPU: "cuda:0", `torch.device("cuda" if
    torch.cuda.is_available() else "cpu")`."""
    if depth > _DEEPEST:
        return False
    for value in view.origins(node):
        match value:
            case ast.Constant(value=str() as text) if text.startswith("cuda"):
                return True
            case ast.JoinedStr(values=[ast.Constant(value=str() as text), *_]) if text.startswith(
                "cuda"
            ):
                return True
            case ast.BinOp(left=left) if is_cuda(left, view, depth + 1):
                return True
            case ast.Call(func=ast.Attribute(attr="format", value=text)) if is_cuda(
                text, view, depth + 1
            ):
                return True
            case ast.Call():
                name = view.resolve(value.func)
                first = [*value.args, *(each.value for each in value.keywords)][:1]
                if name == "torch.device" and first and is_cuda(first[0], view, depth + 1):
                    return True
                if name == "torch.cuda.current_device":
                    return True
            case _:
                pass
    return False


def puts_on_cuda(call: ast.Call, view: View) -> bool:
    """Whether a call puts something on a GPU: `x.cuda()`, `x.to("cuda")`, `device="cuda"`."""
    name = view.resolve(call.func) or ""
    if name in _STARTS_CUDA:
        return True
    for keyword in call.keywords:
        if keyword.arg in ("device", "map_location") and (
            name.startswith("torch.") or isinstance(call.func, ast.Attribute)
        ):
            return name != "torch.device" and is_cuda(keyword.value, view)
    match call.func:
        case ast.Attribute(attr="cuda") if not name.startswith("torch."):
            return True
        case ast.Attribute(attr="to") if call.args:
            return is_cuda(call.args[0], view)
        case _:
            return False
