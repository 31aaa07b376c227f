"""Arguments of a loader that do not go together."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.call_arguments import Argument
from ..source.file_summary import Workers
from ..source.loaders import Loader
from ..source.syntax.constants import UNKNOWN
from ..source.syntax.node_text import text_of
from ..source.view import View
from ._helpers.constructed_classes import constructed_objects
from .rule import CERTAIN, CRASH, LIKELY, POSSIBLE, DropArgument, Fix, Hit, Rule

_NEED_WORKERS = ("prefetch_factor", "persistent_workers", "timeout", "multiprocessing_context")
_OF_TRAINER = {
    "dataloader_prefetch_factor": "TrainingArguments refuses it",
    "dataloader_persistent_workers": "the loader that the Trainer makes refuses it",
}


def find(view: View) -> Iterator[Hit]:
    for loader in view.loaders:
        if view.takes_torchs_arguments(loader):
            yield from _without_workers(loader)
            yield from _without_workers_as_made(loader, view)
            yield from _stream(loader, view)
            yield from _samplers(loader, view)
            yield from _out_of_range(loader)
    for call in view.training_arguments:
        arguments = view.call_arguments(call, ("output_dir",))
        workers = arguments["dataloader_num_workers"]
        if workers.absent or workers.is_(0):
            for name, words in _OF_TRAINER.items():
                if _is_set(arguments[name]):
                    yield _useless(call, name, f"`{name}` needs `dataloader_num_workers`: {words}")


def _without_workers(loader: Loader) -> Iterator[Hit]:
    if loader.workers is not Workers.NONE:
        return
    for name in _NEED_WORKERS:
        argument = loader[name]
        made_here = name == "multiprocessing_context" and isinstance(argument.node, ast.Call)
        if made_here or _is_set(argument):
            words = f"`{name}` needs workers, and this loader has none: it is refused"
            yield _useless(loader.node, name, words)


def _without_workers_as_made(loader: Loader, view: View) -> Iterator[Hit]:
    """Find the same where the number is a parameter, and all that this file passes for it is 0."""
    number = loader["num_workers"]
    if number.node is None or number.value is not UNKNOWN:
        return
    passed = view.origins(number.node)
    if not passed or not all(isinstance(e, ast.Constant) and e.value == 0 for e in passed):
        return
    if not any(each in passed for each in _defaults_used(view)):
        return  # a default that nobody is seen to use
    for name in _NEED_WORKERS:
        if _is_set(loader[name]):
            words = f"`{name}` needs workers, and `num_workers` is 0 here: it is refused"
            yield Hit(loader.node, words, LIKELY)


def _defaults_used(view: View) -> Iterator[ast.expr]:
    """Yield the defaults of functions and classes of this file that it calls itself."""
    for function in view.module.nodes(ast.FunctionDef):
        if view.calls_of(function):
            arguments = function.args
            yield from arguments.defaults
            yield from (each for each in arguments.kw_defaults if each is not None)


def _useless(call: ast.Call, name: str, words: str) -> Hit:
    """Return the hit, at the argument and with the fix if it is written in this very call."""
    for each in call.keywords:
        if each.arg == name:
            return Hit(each, words, fix=Fix(f"drop {name}", (DropArgument(call, name),)))
    return Hit(call, words)


def _stream(loader: Loader, view: View) -> Iterator[Hit]:
    """Find what an iterable dataset is refused with."""
    node = loader["dataset"].node
    found = list(constructed_objects(node, view)) if node is not None else []
    streams = [each for each in found if each.is_iterable and not each.inside]
    if not streams or len(streams) < len(found):
        return
    name = streams[0].owner.name
    if streams[0].owner.descends_from("torch.utils.data.IterDataPipe"):
        return  # it is shuffled by the loader
    words = f"`{name}` is an IterableDataset: the loader cannot shuffle it"
    if _is_set(loader["shuffle"]):
        yield Hit(loader.node, words)
    elif _may_shuffle(loader["shuffle"], view):
        yield Hit(loader.node, f"{words}, as it does in some runs", LIKELY)
    for other in ("sampler", "batch_sampler"):
        if _is_object(loader[other], view) is True:
            yield Hit(loader.node, f"`{name}` is an IterableDataset, which takes no `{other}`")


def _may_shuffle(argument: Argument, view: View) -> bool:
    """Whether True is among what is passed for `shuffle`, and no condition is about streams."""
    if argument.node is None or argument.value is not UNKNOWN:
        return False
    asks = "isinstance" in text_of(argument.node) or "iter" in text_of(argument.node)
    passed = view.origins(argument.node)
    return not asks and any(isinstance(e, ast.Constant) and e.value is True for e in passed)


def _samplers(loader: Loader, view: View) -> Iterator[Hit]:
    sampler = _is_object(loader["sampler"], view)
    batches = _is_object(loader["batch_sampler"], view)
    shuffles = _is_set(loader["shuffle"])
    if batches is not False:
        with_it = [name for name in ("shuffle", "drop_last") if _is_set(loader[name])]
        size = loader["batch_size"]
        if size.given and size.value is not UNKNOWN and size.value != 1:
            with_it.insert(0, "batch_size")
        if sampler is True:
            with_it.append("sampler")
        if with_it:
            others = " and ".join(f"`{each}`" for each in with_it)
            words = f"`batch_sampler` decides what a batch is: it is refused with {others}"
            yield Hit(loader.node, words, CERTAIN if batches else POSSIBLE)
    if sampler is not False and shuffles and not batches:
        words = "the order is the sampler's: `sampler` is refused with `shuffle=True`"
        yield Hit(loader.node, words, CERTAIN if sampler else POSSIBLE)


def _out_of_range(loader: Loader) -> Iterator[Hit]:
    size = loader["batch_size"]
    if size.is_(None) and _is_set(loader["drop_last"]):
        yield Hit(loader.node, "`batch_size=None` makes no batches: it is refused with `drop_last`")
    whole = type(size.value) is int and size.value >= 1
    if size.given and not whole and size.value not in (UNKNOWN, None):
        words = f"`batch_size` must be a whole number above 0, not {size.value!r}"
        yield Hit(loader.node, words)
    for name in ("num_workers", "timeout", "prefetch_factor"):
        value = loader[name].value
        if isinstance(value, (int, float)) and value < 0:
            yield Hit(loader.node, f"`{name}` must not be negative")


def _is_set(argument: Argument) -> bool:
    """Whether it is certainly given, and not what stands for nothing: 0, False, None."""
    return argument.given and bool(argument.value)


def _is_object(argument: Argument, view: View) -> bool | None:
    """Whether a sampler is given; None: perhaps, in some runs."""
    if argument.node is None or argument.is_(None):
        return False
    values = view.values(argument.node)
    empty = [_may_be_none(each, view) for each in values]
    if not values or not any(isinstance(each, (ast.Call, ast.List)) for each in values):
        return False  # we cannot see
    return None if any(empty) else True


def _may_be_none(value: ast.expr, view: View) -> bool:
    """Whether a value is None, or what a function gives that may give that in some runs."""
    if not isinstance(value, ast.Call):
        return isinstance(value, ast.Constant) and value.value is None
    name = (view.resolve(value.func) or text_of(value.func)).rpartition(".")[2]
    return not name[:1].isupper()  # of a class


RULE = Rule(
    code="AF704",
    name="arguments-that-exclude-each-other",
    severity=CRASH,
    confidence=CERTAIN,
    find=find,
)
