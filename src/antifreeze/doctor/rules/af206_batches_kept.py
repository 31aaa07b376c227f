"""Batches kept in a list: each tensor of them holds a descriptor and shared memory."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..findings import Confidence
from ..source.loader_loops import LoaderLoop
from ..source.loaders import Loader
from ..source.syntax.node_text import text_of
from ..source.view import View
from .rule import CRASH, LIKELY, POSSIBLE, Hit, Rule

# Methods that give the same memory again.
_SAME_MEMORY = frozenset(
    {"detach", "cpu", "numpy", "view", "squeeze", "unsqueeze", "reshape", "flatten", "contiguous"}
    | {"values", "items", "get", "permute", "transpose", "data"}
)
_TABLES = frozenset({"dict", "collections.defaultdict", "collections.OrderedDict"})
_ALL = frozenset({"list", "tuple"})
# Parts of batches that are text or numbers, which no shared memory belongs to.
_TEXT = re.compile(r"path|file|name|text|title|caption|word|key|url|str|(^|_)ids?$", re.IGNORECASE)
_TEST = re.compile(r"test_|conftest\.|.*_test\.")  # few batches, and soon forgotten


def find(view: View) -> Iterator[Hit]:
    if view.calls("multiprocessing.set_sharing_strategy"):
        return  # file_system: no descriptors
    for loop in view.loops:
        if loop.loader is None or not _shares(loop.loader) or _takes_some(loop.node.iter, view):
            continue
        confidence = POSSIBLE if _moved(loop.iterable, view) else _confidence(loop.loader)
        if isinstance(loop.node, ast.comprehension):
            yield from _comprehension(loop, view, confidence)
        else:
            yield from _kept(loop, view, confidence)
    for call in view.calls(*_ALL):
        loader = view.loader_of(call.args[0]) if len(call.args) == 1 else None
        if loader is None or not _shares(loader) or _takes_some(call, view):
            continue
        if view.variable_of(call):
            moved = _moved(call.args[0], view)
            yield _hit(call, text_of(call), POSSIBLE if moved else _confidence(loader))


def _shares(loader: Loader) -> bool:
    """Whether batches come in shared memory: from workers, and not copied to pinned memory."""
    return loader.workers.any and not loader.ours and not loader["pin_memory"].is_(True)


def _takes_some(node: ast.expr, view: View) -> bool:
    """Whether only so many batches are taken: `islice(loader, 8)`, `zip(range(8), loader)`."""
    return any(
        view.resolve(each.func) in ("itertools.islice", "range")
        for each in ast.walk(node)
        if isinstance(each, ast.Call)
    )


def _moved(node: ast.expr, view: View) -> bool:
    """Whether batches are copied to the GPU on their way: by Accelerate, or Fabric."""
    return any(
        isinstance(each, ast.Call)
        and isinstance(each.func, ast.Attribute)
        and each.func.attr in ("prepare", "prepare_data_loader", "setup_dataloaders")
        for each in view.origins(node)
    )


def _confidence(loader: Loader) -> Confidence:
    pinned = loader["pin_memory"]
    collated = not (loader["batch_size"].given and loader["batch_size"].value is None)
    own = loader.collate  # a lambda: numpy's arrays, as often as not
    collated = collated and not (own is not None and isinstance(own.node, ast.Lambda))
    sure = (pinned.absent or pinned.is_(False)) and collated and not _none_by_default(loader)
    return LIKELY if sure and not _TEST.match(loader.view.path.name) else POSSIBLE


def _none_by_default(loader: Loader) -> bool:
    """Whether all that is seen of the number of workers is that it is 0, by default."""
    node = loader["num_workers"].node
    seen = loader.view.origins(node) if node is not None else ()
    return bool(seen) and all(
        isinstance(each, ast.Constant) and each.value in (0, None) for each in seen
    )


def _hit(node: ast.AST, what: str, confidence: Confidence) -> Hit:
    return Hit(
        node,
        f"`{what}` keeps the batch's tensors in the workers' shared memory, with an open"
        " descriptor each: after about a thousand of them, `Too many open files`",
        confidence,
    )


def _comprehension(loop: LoaderLoop, view: View, confidence: Confidence) -> Iterator[Hit]:
    assert isinstance(loop.node, ast.comprehension)
    outer = view.module.scopes.parents.get(loop.node)
    names = {each.id for each in ast.walk(loop.node.target) if isinstance(each, ast.Name)}
    if (
        isinstance(outer, ast.ListComp)
        and _is_of_batch(outer.elt, names)
        and view.variable_of(outer)
    ):
        yield _hit(outer, text_of(outer), confidence)


def _kept(loop: LoaderLoop, view: View, confidence: Confidence) -> Iterator[Hit]:
    assert isinstance(loop.node, (ast.For, ast.AsyncFor))
    names = _batch_names(loop.node)
    made_inside = {
        text_of(target)
        for statement in loop.body
        for node in ast.walk(statement)
        if isinstance(node, ast.Assign)
        for target in node.targets
    }
    for statement in loop.body:
        for node in ast.walk(statement):
            place, value = _keeping(node)
            if place is None or value is None or not _is_of_batch(value, names):
                continue
            if isinstance(node, ast.Assign) and not _is_table(place, view):
                continue
            place_name = text_of(place)
            if place_name in made_inside or _emptied(place_name, loop):
                continue
            if _is_limited(place, view) or _is_for_some(node, loop, view):
                continue
            text = _TEXT.search(text_of(value).lower()) is not None
            yield _hit(node, text_of(node), POSSIBLE if text else confidence)


def _is_limited(place: ast.expr, view: View) -> bool:
    """Whether it is a `deque(maxlen=8)`."""
    return any(
        isinstance(each, ast.Call) and any(keyword.arg == "maxlen" for keyword in each.keywords)
        for each in view.origins(place)
    )


def _is_for_some(node: ast.AST, loop: LoaderLoop, view: View) -> bool:
    """Whether only the first batches are kept: under `if step < 16`, `if step == 0`."""
    counters = _counters(loop)
    inner = node
    for outer in view.module.ancestors(node):
        if outer is loop.node:
            return False
        if isinstance(outer, ast.If):
            for test in ast.walk(outer.test):
                match test:
                    case ast.Compare(left=ast.Name(id=name), ops=[op]) if name in counters:
                        less = isinstance(op, (ast.Lt, ast.LtE, ast.Eq))
                        if less if inner in outer.body else isinstance(op, (ast.Gt, ast.GtE)):
                            return True
                    case _:
                        pass
        inner = outer
    return False


def _counters(loop: LoaderLoop) -> set[str]:
    """Return the names that count batches: of `enumerate`, and those that the body adds to."""
    found = {
        node.target.id
        for statement in loop.body
        for node in ast.walk(statement)
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)
    }
    match loop.node.target:
        case ast.Tuple(elts=[ast.Name(id=first), *_]) if "enumerate" in text_of(loop.node.iter):
            found.add(first)
        case _:
            pass
    return found


def _is_table(place: ast.expr, view: View) -> bool:
    """Whether `place[x] = y` keeps y: a dict does; a tensor copies it, a database writes it."""
    return any(
        isinstance(each, (ast.Dict, ast.DictComp))
        or (isinstance(each, ast.Call) and view.resolve(each.func) in _TABLES)
        for each in view.origins(place)
    )


def _batch_names(loop: ast.For | ast.AsyncFor) -> set[str]:
    """Return the names of the batch and its parts, without those that the body gives something
    else: `x = x.to(device)`."""
    names = {each.id for each in ast.walk(loop.target) if isinstance(each, ast.Name)}
    anew: set[str] = set()
    for statement in loop.body:
        for node in ast.walk(statement):
            if not isinstance(node, (ast.Assign, ast.AnnAssign, ast.For)):
                continue
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            value = node.iter if isinstance(node, ast.For) else node.value
            given = {e.id for t in targets for e in ast.walk(t) if isinstance(e, ast.Name)}
            if value is not None and _is_of_batch(value, names) and not isinstance(node, ast.For):
                names |= {e for e in given if e not in names}
            else:
                anew |= given
    match loop.iter:  # for number, batch in enumerate(loader)
        case ast.Call(func=ast.Name(id="enumerate")):
            if isinstance(loop.target, ast.Tuple) and isinstance(loop.target.elts[0], ast.Name):
                anew.add(loop.target.elts[0].id)
        case _:
            pass
    return names - anew


def _keeping(node: ast.AST) -> tuple[ast.expr | None, ast.expr | None]:
    """Return where a statement keeps something, and what."""
    match node:
        case ast.Call(func=ast.Attribute(attr="append" | "add", value=place), args=[value]):
            return place, value
        case ast.Call(func=ast.Attribute(attr="extend", value=place), args=[value]):
            # The rows of a tensor are views of it; those of an array of numbers are copies.
            return place, None if "numpy" in text_of(value) else value
        case ast.AugAssign(op=ast.Add(), target=place, value=ast.List(elts=[value])):
            return place, value
        case ast.Assign(targets=[ast.Subscript(value=place)], value=value):
            return place, value
        case _:
            return None, None


def _is_of_batch(value: ast.expr, names: set[str]) -> bool:
    """Whether a value is a batch or a part of it, in the same memory."""
    match value:
        case ast.Name():
            return value.id in names and not _TEXT.search(value.id)
        case ast.Subscript(slice=ast.Constant(value=str() as key)) if _TEXT.search(key):
            return False
        case ast.Subscript() | ast.Attribute():
            return _is_of_batch(value.value, names)
        case ast.Tuple() | ast.List():
            return any(_is_of_batch(each, names) for each in value.elts)
        case ast.Dict():
            return any(_is_of_batch(each, names) for each in value.values)
        case ast.Call(func=ast.Attribute(attr=method, value=inner)) if method in _SAME_MEMORY:
            return _is_of_batch(inner, names)
        case _:
            return False


def _emptied(place: str, loop: LoaderLoop) -> bool:
    """Whether the list does not grow with the epoch: it is emptied, or the loop ends early."""
    for statement in loop.body:
        for node in ast.walk(statement):
            match node:
                case ast.Break() | ast.Return():
                    return True
                case ast.Call(func=ast.Name(id="len"), args=[owner]) if _is_asked(node, loop):
                    if text_of(owner) == place:
                        return True  # `if len(shown) < 16: shown.append(x)`
                case ast.Call(func=ast.Attribute(attr="clear" | "pop" | "popleft", value=owner)):
                    if text_of(owner) == place:
                        return True
                case _:
                    pass
    return False


def _is_asked(node: ast.AST, loop: LoaderLoop) -> bool:
    """Whether a value decides what is done: it is compared in the test of an `if`."""
    parents = loop.view.module.scopes.parents
    return isinstance(parents.get(node), ast.Compare)


RULE = Rule(
    code="AF206",
    name="batches-kept",
    severity=CRASH,
    confidence=LIKELY,
    find=find,
)
