"""A variable of the environment that limits threads, set where nobody reads it any more."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.view import View
from .rule import LIKELY, POSSIBLE, SLOW, Hit, Rule

# The variables, and the packages that read them once, when they are imported.
VARIABLES = {
    "OMP_NUM_THREADS": ("torch", "numpy", "scipy", "sklearn", "cv2"),
    "MKL_NUM_THREADS": ("torch", "numpy", "scipy"),
    "OPENBLAS_NUM_THREADS": ("numpy", "scipy"),
    "NUMEXPR_NUM_THREADS": ("numexpr", "pandas"),
    "VECLIB_MAXIMUM_THREADS": ("numpy", "scipy"),
}
UNREAL = {"OPENCV_OPENMP_NUM_THREADS": "`cv2.setNumThreads(0)`"}
# Who starts other programs or processes sets it for them.
_STARTERS = (
    "subprocess",
    "multiprocessing",
    "torch.multiprocessing",
    "concurrent",
    "joblib",
    "ray",
)


def find(view: View) -> Iterator[Hit]:
    for node, name in _settings(view):
        if name in UNREAL:
            yield Hit(node, f"OpenCV has no variable `{name}`: setting it changes nothing")
        elif name in VARIABLES and not view.imports(*_STARTERS):
            first = _imported_before(node, VARIABLES[name], view)
            if first:
                top = view.function_around(node) is None
                yield Hit(
                    node,
                    f"`{name}` is set after `{first}` was imported, which has read it by then:"
                    " setting it changes nothing in this process",
                    LIKELY if top else POSSIBLE,
                )


def _settings(view: View) -> Iterator[tuple[ast.AST, str]]:
    """Yield where variables are set: `os.environ["X"] = ...`, `.setdefault`, `putenv`."""
    for assigned in view.module.nodes(ast.Assign):
        for target in assigned.targets:
            if isinstance(target, ast.Subscript) and view.resolve(target.value) == "os.environ":
                name = view.constant(target.slice)
                if isinstance(name, str):
                    yield assigned, name
    for call in view.calls("os.environ.setdefault", "os.putenv"):
        name = view.constant(call.args[0]) if call.args else None
        if isinstance(name, str):
            yield call, name
    for call in view.calls("os.environ.update"):
        for each in call.args:
            for key in each.keys if isinstance(each, ast.Dict) else ():
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield call, key.value


def _imported_before(node: ast.AST, packages: tuple[str, ...], view: View) -> str:
    """Return the package that is imported above, at the top of the file; or ''."""
    for statement in view.module.tree.body:
        if statement.lineno >= getattr(node, "lineno", 0):
            return ""
        match statement:
            case ast.Import(names=names):
                tops = [each.name.partition(".")[0] for each in names]
            case ast.ImportFrom(module=str() as module, level=0):
                tops = [module.partition(".")[0]]
            case _:
                continue
        for top in tops:
            if top in packages:
                return top
    return ""


RULE = Rule(
    code="AF503",
    name="thread-variable-without-effect",
    severity=SLOW,
    confidence=LIKELY,
    find=find,
)
