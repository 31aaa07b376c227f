"""A sample that fails is tried again, and again."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.definitions import Function
from ..source.view import View
from ..source.wording import text_of
from .base import FREEZE, LIKELY, POSSIBLE, Hit, Rule
from .catching import Attempt, catches, handlers, leaves, own_nodes

# What these say is "not yet" or "the end", and a loop around them is how one waits.
_NOT_FAILURES = ("Empty", "Full", "StopIteration", "StopAsyncIteration", "TimeoutError", "timeout")


def find(view: View) -> Iterator[Hit]:
    for code in view.worker_code:
        confidence = LIKELY if code.workers is not None else POSSIBLE
        for attempt, handler in handlers(code.function):
            again = _same_sample(handler, code.function)
            if again is not None:
                yield Hit(
                    again,
                    f"`{text_of(again)}` tries a sample that failed again, for as long as it"
                    " fails: about a thousand times, then a RecursionError hides the cause",
                    confidence,
                )
            elif (loop := _endless(attempt, handler, view)) is not None:
                so = "" if code.only_ours else ", and the loop over the loader, for ever"
                yield Hit(
                    loop,
                    f"this loop in `{code.function.name}` tries again whatever fails, without a"
                    f" limit: one sample that always fails stops its worker{so}",
                    confidence,
                )


def _same_sample(handler: ast.ExceptHandler, function: Function) -> ast.expr | None:
    """Give what loads the same sample once more: `return self[index]`."""
    indices = function.parameters[1:2] if function.name == "__getitem__" else []
    if any(isinstance(e, (ast.Raise, ast.If)) for e in own_nodes(handler)) or _stored(
        [handler], set(indices)
    ):
        return None
    for node in own_nodes(handler):
        match node:
            case ast.Call(func=ast.Attribute(attr="__getitem__"), args=[ast.Name(id=name)]):
                pass
            case ast.Subscript(value=ast.Name(id="self"), slice=ast.Name(id=name), ctx=ast.Load()):
                pass
            case _:
                continue
        if name in indices:
            assert isinstance(node, ast.expr)
            return node
    return None


def _endless(attempt: Attempt, handler: ast.ExceptHandler, view: View) -> ast.While | None:
    """Give the `while True` that goes on with the same thing after an exception."""
    loop = view.loop_around(attempt)
    if not isinstance(loop, ast.While) or attempt not in loop.body or attempt.finalbody:
        return None
    constant = isinstance(loop.test, ast.Constant) and bool(loop.test.value)
    if not constant and not _waits_for_success(loop, attempt, handler):
        return None
    if leaves(handler) or catches(handler, *_NOT_FAILURES):
        return None
    others = [each for each in loop.body if each is not attempt]
    if any(
        isinstance(node, (ast.Raise, ast.Break, ast.Return)) and not _after(each, attempt, loop)
        for each in others
        for node in own_nodes(each)
    ):
        return None
    used = {
        node.id
        for each in attempt.body
        for node in own_nodes(each)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    if any(isinstance(n, (ast.Yield, ast.YieldFrom)) for e in attempt.body for n in own_nodes(e)):
        return None  # a stream that goes on with what comes next
    return None if _changes([handler, *others], used) else loop


def _waits_for_success(loop: ast.While, attempt: Attempt, handler: ast.ExceptHandler) -> bool:
    """Say whether only a success ends a loop: `while not done:`, `while sample is None:`."""
    match loop.test:
        case ast.UnaryOp(op=ast.Not(), operand=ast.Name(id=name)):
            pass
        case ast.Compare(
            left=ast.Name(id=name), ops=[ast.Is()], comparators=[ast.Constant(value=None)]
        ):
            pass
        case _:
            return False
    others = [each for each in loop.body if each is not attempt]
    return _stored(list(attempt.body), {name}) and not _stored([handler, *others], {name})


def _after(statement: ast.stmt, attempt: Attempt, loop: ast.While) -> bool:
    """Say whether a statement is reached only when the attempt succeeded."""
    skips = all(
        handler.body and isinstance(handler.body[-1], ast.Continue) for handler in attempt.handlers
    )
    return skips and loop.body.index(statement) > loop.body.index(attempt)


def _changes(nodes: list[ast.AST], used: set[str]) -> bool:
    """Say whether the next round tries something else: another index, another file."""
    random_calls = any(
        isinstance(node, ast.Call) and "rand" in text_of(node.func)
        for each in nodes
        for node in own_nodes(each)
    )
    return random_calls or _stored(nodes, used)


def _stored(nodes: list[ast.AST], names: set[str]) -> bool:
    return any(
        isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in names
        for each in nodes
        for node in own_nodes(each)
    )


RULE = Rule(
    code="AF406",
    name="retried-for-ever",
    severity=FREEZE,
    confidence=LIKELY,
    title="A sample that fails is tried again without end",
    what="""
    `while True` around a `try` whose handler goes on with the same sample, or `__getitem__` that
    calls itself with the same index after an exception.
    """,
    why="""
    What fails once often fails always: a file that is gone, a broken picture, a bug. The worker
    then never comes back. Batches come in order, so the loop over the loader waits for it, without
    a word and without a time limit; see [endless-sample](../hangs/endless-sample.md).
    `return self[index]` ends after a thousand calls in a RecursionError (measured), which says
    nothing of the real error; if each try waits for a disk or a server, that takes hours.
    """,
    instead="""
    Try a few times and then raise the last error: `for attempt in range(3)`. Wait a little between
    the tries. antifreeze's loader does it for you: `on_error=policies.raising(retries=2)`, with
    each try in `loader.faults`.
    """,
    not_flagged="""
    Loops that give up after some tries, that take another sample each time (AF405 looks at those),
    and those that wait for a queue or go on with a stream.
    """,
    bad="""
import time

from torch.utils.data import DataLoader, Dataset


class Texts(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        while True:
            try:
                with open(self.paths[index]) as file:
                    return file.read()
            except OSError:
                time.sleep(1)


def load(paths):
    return DataLoader(Texts(paths), batch_size=8, num_workers=4)
""",
    good="""
import time

from torch.utils.data import DataLoader, Dataset


class Texts(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        for wait_s in (1, 4, 16):
            try:
                with open(self.paths[index]) as file:
                    return file.read()
            except OSError:
                time.sleep(wait_s)
        raise RuntimeError(f"sample {index} cannot be read: {self.paths[index]}")


def load(paths):
    return DataLoader(Texts(paths), batch_size=8, num_workers=4)
""",
    also_bad=(
        """
import time

import requests
from torch.utils.data import DataLoader, Dataset


class Features(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        answer = None
        while answer is None:
            try:
                answer = requests.get(f"http://features/{index}", timeout=5).json()
            except Exception:
                time.sleep(1)
        return answer["x"]


def load():
    return DataLoader(Features(1000), batch_size=8, num_workers=4)
""",
        """
from PIL import Image
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self, root, names, transform):
        self.root = root
        self.names = names
        self.transform = transform

    def __len__(self):
        return len(self.names)

    def __getitem__(self, idx):
        try:
            image = Image.open(f"{self.root}/{self.names[idx]}")
        except Exception as e:
            print(e)
            return self.__getitem__(idx)
        return self.transform(image)


def main(cfg, transform):
    dataset = Pictures(cfg.root, cfg.names, transform)
    return DataLoader(dataset, cfg.batch_size, num_workers=cfg.workers)
""",
        """
import logging

import torch.utils.data as data


def read(client, key):
    while 1:
        try:
            value = client.get(key)
            break
        except Exception:
            logging.exception("could not read %s", key)
    return value


class Store(data.Dataset):
    def __init__(self, client, keys):
        self.client = client
        self.keys = keys

    def __len__(self):
        return len(self.keys)

    def __getitem__(self, index):
        return read(self.client, self.keys[index])


def loader(client, keys):
    return data.DataLoader(Store(client, keys), num_workers=8)
""",
    ),
    also_good=(
        """
import time

from torch.utils.data import DataLoader, Dataset


class Texts(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        tries = 0
        while True:
            try:
                with open(self.paths[index]) as file:
                    return file.read()
            except OSError:
                tries += 1
                if tries > 3:
                    raise
                time.sleep(1)


def load(paths):
    return DataLoader(Texts(paths), batch_size=8, num_workers=4)
""",
        """
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Forever(IterableDataset):
    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        assert get_worker_info() is not None
        batches = iter(self.loader)
        while True:
            try:
                batch = next(batches)
            except StopIteration:
                batches = iter(self.loader)
                continue
            yield batch


def load(loader):
    return DataLoader(Forever(loader), batch_size=None, num_workers=1)
""",
        """
import logging
import random

from torch.utils.data import DataLoader, Dataset


class Texts(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        while True:
            try:
                with open(self.paths[index]) as file:
                    return file.read()
            except OSError:
                logging.exception("sample %d", index)
                index = random.randrange(len(self))


def load(paths):
    return DataLoader(Texts(paths), batch_size=8, num_workers=4)
""",
    ),
    find=find,
    follows=True,
)
