"""All workers write to the same file."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.syntax.node_text import text_of
from ..source.view import View
from ..source.worker_code import WorkerCode
from .rule import LIKELY, POSSIBLE, WRONG_DATA, Hit, Rule

_OPENS = frozenset({"open", "io.open", "gzip.open", "h5py.File", "zipfile.ZipFile", "tarfile.open"})
# Who writes a file, and where the path is among the arguments.
_WRITERS = {
    "torch.save": 1,
    "numpy.save": 0,
    "numpy.savez": 0,
    "numpy.savez_compressed": 0,
    "numpy.savetxt": 0,
    "cv2.imwrite": 0,
    "imageio.imwrite": 0,
    "imageio.v2.imwrite": 0,
    "imageio.v3.imwrite": 0,
    "torchaudio.save": 0,
    "torchvision.io.write_jpeg": 1,
    "torchvision.io.write_png": 1,
    "torchvision.utils.save_image": 1,
    "soundfile.write": 0,
    "joblib.dump": 1,
}
_COMMANDS = frozenset(
    f"subprocess.{name}" for name in ("run", "call", "check_call", "check_output", "Popen")
) | {"os.system"}
_WRITING_METHODS = frozenset({"to_csv", "to_parquet", "to_pickle", "to_json"})
_PATH_CALLS = frozenset({"os.path.join", "str", "pathlib.Path", "os.path.expanduser", "os.fspath"})


def find(view: View) -> Iterator[Hit]:
    for code in view.worker_code:
        for call in code.function.calls():
            path, appends = _written(call, view)
            written = _by_command(call, code, view)
            if written is not None or (path is not None and _same_for_all(path, code, view)):
                path = written or path
                assert path is not None
                yield Hit(
                    call,
                    f"every worker writes to the same file, `{text_of(path)}`: they overwrite"
                    " each other, and who reads it meanwhile gets half a file",
                    POSSIBLE if appends or code.workers is None else LIKELY,
                )


def _by_command(call: ast.Call, code: WorkerCode, view: View) -> ast.expr | None:
    """Return the file that a command is told to write, and that the function then reads: the same
    text is in the command and in another call."""
    if view.resolve(call.func) not in _COMMANDS:
        return None
    parts = [*call.args, *(e for a in call.args if isinstance(a, ast.List) for e in a.elts)]
    mine = {each for each in parts if isinstance(each, ast.Constant)}
    others = {
        node.value
        for other in code.function.calls()
        if view.resolve(other.func) not in _COMMANDS
        for node in other.args
        if isinstance(node, ast.Constant)
    }
    for each in sorted(mine, key=lambda node: (node.lineno, node.col_offset)):
        if isinstance(each.value, str) and "." in each.value and each.value in others:
            return each
    return None


def _written(call: ast.Call, view: View) -> tuple[ast.expr | None, bool]:
    """Return the path that a call writes to, and whether it only adds to the end."""
    name = view.resolve(call.func)
    if name in _OPENS:
        arguments = view.call_arguments(call, ("file", "mode"))
        mode = arguments["mode"].value
        if not isinstance(mode, str) or not set(mode) & set("wax+"):
            return None, False
        path = arguments["file"].node or (call.args[0] if call.args else None)
        return path, "a" in mode
    if name in _WRITERS and len(call.args) > _WRITERS[name]:
        return call.args[_WRITERS[name]], False
    match call:
        case ast.Call(func=ast.Attribute(attr="write_bytes" | "write_text", value=path)):
            return path, False
        case ast.Call(func=ast.Attribute(attr=method), args=[path, *_]) if (
            name is None and method in _WRITING_METHODS
        ):
            return path, any(each.arg == "mode" for each in call.keywords)
        case _:
            return None, False


def _same_for_all(path: ast.expr, code: WorkerCode, view: View) -> bool:
    parts = view.dependencies(path, code.function)
    if not parts.complete or parts.parameters or parts.calls - _PATH_CALLS:
        return False
    dataset = code.dataset
    if parts.attributes and dataset is None:
        return False
    has_text = parts.attributes or isinstance(view.constant(path), str) or _names_a_file(path, view)
    return bool(has_text) and not any(
        dataset.sets_anew(each) or not dataset.assignments(each)
        for each in parts.attributes
        if dataset is not None
    )


def _names_a_file(path: ast.expr, view: View) -> bool:
    """Whether there is text in a path: not an object that somebody else opened."""
    value = view.value(path) or path
    return any(
        isinstance(each, ast.Constant) and isinstance(each.value, str) for each in ast.walk(value)
    )


RULE = Rule(
    code="AF207",
    name="one-file-for-all-workers",
    severity=WRONG_DATA,
    confidence=LIKELY,
    find=find,
    follows=True,
)
