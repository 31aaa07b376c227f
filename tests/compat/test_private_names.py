"""Private names of torch stand in one file, which is checked when it is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import dataloader

import antifreeze
from antifreeze import _torch_internals

SOURCE = Path(antifreeze.__file__).parent
HOME = SOURCE / "_torch_internals.py"
# Public by their names, but undocumented or deprecated: they may go, too.
MAY_GO = (
    "torch.multiprocessing.reductions",
    "torch.utils.data.graph_settings",
    "torch.utils.data.IterDataPipe",
    "torch.utils.data.MapDataPipe",
)
CHECKED = {*_torch_internals.LOADER_ATTRIBUTES, *_torch_internals.ITERATOR_ATTRIBUTES}


def _is_private(name: str) -> bool:
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__"))


def _is_barred(path: str) -> bool:
    """Whether a dotted name of torch is for `_torch_internals` alone."""
    return any(map(_is_private, path.split("."))) or path.startswith(MAY_GO)


def _imported(tree: ast.AST) -> Iterator[tuple[str, str, int]]:
    """Yield each name that is bound by an import of torch, and what it stands for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == "torch":
                    bound = alias.asname or "torch"
                    yield bound, alias.name if alias.asname else "torch", node.lineno
                    yield "", alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom) and not node.level:
            home = node.module or ""
            for alias in node.names if home.partition(".")[0] == "torch" else ():
                yield alias.asname or alias.name, f"{home}.{alias.name}", node.lineno


def _dotted(node: ast.expr, bound: dict[str, str]) -> str | None:
    """Return the path of a name of torch, as far as an expression is one."""
    match node:
        case ast.Name(id=name):
            return bound.get(name)
        case ast.Attribute(value=value, attr=attribute):
            home = _dotted(value, bound)
            return home and f"{home}.{attribute}"
    return None


def private_names_in(source: str) -> list[tuple[int, str]]:
    tree = ast.parse(source)
    imported = list(_imported(tree))
    bound = {name: path for name, path, _ in imported if name}
    found = [(line, path) for _, path, line in imported if _is_barred(path)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (path := _dotted(node, bound)):
            if _is_barred(path):
                found.append((node.lineno, path))
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("getattr", "hasattr", "setattr", "delattr")
            and isinstance(node.args[1], ast.Constant)
            and (path := _dotted(node.args[0], bound))
            and _is_barred(f"{path}.{node.args[1].value}")
        ):
            found.append((node.lineno, f"{path}.{node.args[1].value}"))
    return sorted(set(found))


def _others() -> list[Path]:
    """Return all files of the package, in all its rooms, but the one that may use these names."""
    files = [file for file in SOURCE.rglob("*.py") if file != HOME]
    assert len(files) > 300
    rooms = {file.relative_to(SOURCE).parts[0] for file in files}
    assert rooms >= {"loader.py", "_engine", "_worker", "_processes", "doctor", "integrations"}
    return files


def test_no_other_file_uses_a_private_name_of_torch() -> None:
    found = {
        str(file): names for file in _others() if (names := private_names_in(file.read_text()))
    }
    assert found == {}


def test_the_file_that_may_use_them_is_not_empty() -> None:
    assert len(private_names_in(HOME.read_text())) >= 5
    assert len(CHECKED) >= 20


def test_the_reader_of_private_names_sees_each_way_to_write_one() -> None:
    for line in (
        "from torch.utils.data.dataloader import _DatasetKind",
        "from torch.utils.data import _utils as inner",
        "import torch._C",
        "import torch._C as inner",
        "import torch\ntorch._make_per_tensor_quantized_tensor(1)",
        "import torch.utils.data as data\nprint(data._utils.worker)",
        "from torch.utils.data import dataloader as engine\nengine._Base.__init__ = None",
        "import torch\ngetattr(torch, '_C')",
        "from torch.multiprocessing import reductions",
        "from torch.utils.data import IterDataPipe",
    ):
        assert private_names_in(line), line
    for line in (
        "import torch\ntorch.Tensor.__reduce_ex__",
        "from torch.utils.data import Dataset",
        "EXAMPLE = 'import torch._C'",
    ):
        assert private_names_in(line) == [], line


def _attributes_in(file: Path, *, of_self: bool = True) -> set[str]:
    tree = ast.parse(file.read_text())
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and _is_private(node.attr)
        and (of_self or not (isinstance(node.value, ast.Name) and node.value.id == "self"))
    }


def _own(*classes: type) -> set[str]:
    """Return the private attributes of classes of torch."""
    return {name for cls in classes for name in _torch_internals._attributes_of(cls)}


def test_every_attribute_of_torchs_loader_that_ours_uses_is_checked() -> None:
    torchs = _own(dataloader.DataLoader, dataloader._BaseDataLoaderIter)
    torchs = {name for name in torchs if _is_private(name)}
    assert torchs >= CHECKED
    used: set[str] = set()
    for file in _others():
        used |= _attributes_in(file)
    assert used & torchs <= CHECKED
    assert len(used & torchs) >= 15


def test_no_other_file_uses_a_private_attribute_of_a_tensor_a_storage_or_a_generator() -> None:
    kinds: tuple[Any, ...] = (
        torch.Tensor,
        torch.Generator,
        torch.UntypedStorage,
        torch.storage.TypedStorage,
    )
    torchs = {name for kind in kinds for name in dir(kind) if _is_private(name)}
    torchs |= {"_ragged_idx", "_untyped_storage"}
    assert {"_version", "_cdata", "_nested_tensor_size"} <= torchs
    for file in _others():
        assert not _attributes_in(file, of_self=False) & torchs, file
