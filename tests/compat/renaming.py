"""Run a small program on a torch that has another name for one of its own things.

python renaming.py KIND NAME ...: for each name, a forked process renames it wherever the Python
code of torch's loader uses or defines it, so that torch itself still works; then it imports
antifreeze, loads samples of that kind, and one line of JSON tells how that went. A name with a
module before it (`torch._x`) is hidden from antifreeze alone: torch's code in C++ may need it.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import multiprocessing
import os
import sys
import types
import warnings
from typing import Any

import torch
import torch.utils.data

PARTS = ("torch.utils.data", "torch.multiprocessing")
EXPECTED = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def rename(old: str) -> None:
    new = f"{old}_of_another_torch"
    for name, module in list(sys.modules.items()):
        if name.startswith(PARTS) and isinstance(module, types.ModuleType):
            _rename_in(vars(module), old, new, set())


def _rename_in(names: Any, old: str, new: str, seen: set[int], owner: Any = None) -> None:
    for name, value in list(names.items()):
        if isinstance(value, type) and value.__module__.startswith(PARTS):
            if id(value) not in seen:
                seen.add(id(value))
                _rename_in(vars(value), old, new, seen, value)
        else:
            for function in _functions(value):
                function.__code__ = _renamed(function.__code__, old, new)
        if name == old and owner is None:
            names[new] = names.pop(old)
        elif name == old:
            setattr(owner, new, value)
            delattr(owner, old)


def _functions(value: Any) -> list[types.FunctionType]:
    behind = [value, *(getattr(value, name, None) for name in ("fget", "fset", "__func__"))]
    found = [each for each in behind if isinstance(each, types.FunctionType)]
    return [each for each in found if (each.__module__ or "").startswith(PARTS)]


def _renamed(code: types.CodeType, old: str, new: str) -> types.CodeType:
    return code.replace(
        co_names=tuple(new if name == old else name for name in code.co_names),
        co_consts=tuple(
            _renamed(each, old, new) if isinstance(each, types.CodeType) else each
            for each in code.co_consts
        ),
    )


def hide(path: str) -> None:
    """Have a name missing while antifreeze looks for it."""
    home, _, name = path.rpartition(".")
    owner: Any = torch
    if home.startswith(PARTS):
        owner = importlib.import_module(home)
    else:
        for step in home.split(".")[1:]:
            owner = getattr(owner, step)
    hidden = getattr(owner, name)
    delattr(owner, name)
    import antifreeze._torch_internals  # noqa: F401

    setattr(owner, name, hidden)


def numbers() -> tuple[Any, dict[str, Any]]:
    return range(10), {}


def pinned() -> tuple[Any, dict[str, Any]]:
    return range(10), {"pin_memory": True}


def piped() -> tuple[Any, dict[str, Any]]:
    from torch.utils.data.datapipes.map import SequenceWrapper

    return SequenceWrapper(range(10)), {}


def _whole(samples: list[Any]) -> Any:
    return samples[0]


def _part(batch: Any) -> list[Any]:
    tensor = batch.dequantize() if batch.is_quantized else batch
    return [each.tolist() for each in tensor.unbind()] if tensor.is_nested else tensor.tolist()


def quantized() -> tuple[Any, dict[str, Any]]:
    values = torch.arange(10.0)
    per_tensor = torch.quantize_per_tensor(values, 0.5, 1, torch.qint8)
    scales = torch.ones(2), torch.zeros(2, dtype=torch.long)
    per_channel = torch.quantize_per_channel(values.view(2, 5), *scales, 0, torch.qint8)
    return [per_tensor, per_channel], {"batch_size": 1, "collate_fn": _whole}


def nested() -> tuple[Any, dict[str, Any]]:
    parts = [torch.arange(3.0), torch.arange(4.0)]
    return (
        [torch.nested.nested_tensor(parts, layout=how) for how in (torch.strided, torch.jagged)],
        {"batch_size": 1, "collate_fn": _whole},
    )


KINDS = {each.__name__: each for each in (numbers, pinned, piped, quantized, nested)}


def load(kind: str) -> dict[str, Any]:
    """Load a few batches without workers and with two of them."""
    multiprocessing.set_start_method("fork")  # what was renamed is so in this process only
    dataset, arguments = KINDS[kind]()
    expected = EXPECTED if kind in ("numbers", "pinned", "piped") else [_part(it) for it in dataset]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        from antifreeze import DataLoader

        engines, right = set(), True
        for workers in (0, 2):
            for _ in range(2):
                given = {"batch_size": 4, "num_workers": workers, **arguments}
                loader: Any = DataLoader(dataset, **given)
                iterator = iter(loader)
                engines.add(type(iterator).__module__.partition(".")[0])
                right &= [_part(batch) for batch in iterator] == expected
                loader.stats(), loader.explain(), repr(loader), loader.snapshot()  # never raise
    notices = [str(it.message) for it in caught if str(it.message).startswith("antifreeze")]
    return {"right": right, "engines": sorted(engines), "notices": notices}


def _in_a_fork(kind: str, name: str) -> dict[str, Any]:
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        with contextlib.suppress(KeyboardInterrupt):
            try:
                hide(name) if "." in name else rename(name)
                os.write(writes, json.dumps(load(kind)).encode())
                code = 0
            except BaseException:
                import traceback

                os.write(writes, json.dumps({"failed": traceback.format_exc()[-3000:]}).encode())
        os._exit(code)
    os.close(writes)
    with open(reads, "rb") as answer:
        told = answer.read()
    _, status = os.waitpid(pid, 0)
    found: dict[str, Any] = json.loads(told or "{}")
    return {"name": name, "exit": os.waitstatus_to_exitcode(status), **found}


if __name__ == "__main__":
    for each in sys.argv[2:]:
        print(json.dumps(_in_a_fork(sys.argv[1], each)), flush=True)
