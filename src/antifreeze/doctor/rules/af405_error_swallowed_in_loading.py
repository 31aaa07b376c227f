"""An error in a sample that nobody hears of, and another sample in its place."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.definitions import DatasetKind, Function
from ..source.view import View
from ..source.wording import text_of
from .base import LIKELY, POSSIBLE, WRONG_DATA, Hit, Rule
from .catching import Attempt, handlers, is_broad, own_nodes, tells


def find(view: View) -> Iterator[Hit]:
    for dataset in view.datasets:
        if dataset.kind is DatasetKind.MAP:
            starts = [dataset.methods.get("__getitem__"), dataset.methods.get("__getitems__")]
        else:
            starts = [dataset.methods.get("__iter__"), dataset.methods.get("__next__")]
        own = set(starts)
        for function in dataset.loading:
            if view.module.holds(function.node):
                yield from _hits(function, any(f and f.node is function.node for f in own))


def _hits(function: Function, is_start: bool) -> Iterator[Hit]:
    """Give a function's hits. Handlers that all do the same are one habit: only the first is
    shown."""
    shown: set[str] = set()
    for hit in _every(function, is_start):
        if hit.words not in shown:
            shown.add(hit.words)
            yield hit


def _every(function: Function, is_start: bool) -> Iterator[Hit]:
    for attempt, handler in handlers(function):
        if not is_broad(handler) or tells(handler):
            continue
        again = _another(handler, function)
        if again is not None:
            yield Hit(
                handler,
                f"any error that `{function.name}` catches here gives `{text_of(again)}`"
                " instead, and nobody counts how often: broken files and bugs become repeated"
                " samples",
                LIKELY,
            )
        elif _goes_on(handler) and _loads(attempt):
            left_out = any(isinstance(each, ast.Continue) for each in handler.body)
            what = "leaves the sample out" if left_out else "is passed over"
            yield Hit(
                handler,
                f"any error that `{function.name}` catches here {what}, and nobody counts how"
                " often",
                LIKELY if left_out and is_start else POSSIBLE,
            )


def _another(handler: ast.ExceptHandler, function: Function) -> ast.expr | None:
    """Give what loads another sample: `self[other]`, `self.__getitem__(other)`."""
    for node in own_nodes(handler):
        index: ast.expr
        match node:
            case ast.Call(func=ast.Attribute(attr="__getitem__"), args=[index]):
                pass
            case ast.Subscript(value=ast.Name(id="self"), slice=index, ctx=ast.Load()):
                pass
            case _:
                continue
        same = isinstance(index, ast.Name) and index.id in function.parameters
        changed = any(
            isinstance(each, ast.Name)
            and isinstance(each.ctx, ast.Store)
            and same
            and each.id == getattr(index, "id", "")
            for each in own_nodes(handler)
        )
        if not same or changed:
            assert isinstance(node, ast.expr)
            return node
    return None


def _goes_on(handler: ast.ExceptHandler) -> bool:
    """Say whether it does nothing at all: `pass`, `continue`, at most a `print`."""
    return all(
        isinstance(each, (ast.Pass, ast.Continue))
        or (isinstance(each, ast.Expr) and isinstance(each.value, (ast.Constant, ast.Call)))
        for each in handler.body
    )


def _loads(attempt: Attempt) -> bool:
    """Say whether what is tried gives something to a sample: not an import, not a clean-up."""
    return any(isinstance(each, (ast.Assign, ast.Return, ast.Expr)) for each in attempt.body) and (
        any(
            isinstance(node, (ast.Return, ast.Yield, ast.Assign))
            for each in attempt.body
            for node in own_nodes(each)
        )
    )


RULE = Rule(
    code="AF405",
    name="error-swallowed-in-loading",
    severity=WRONG_DATA,
    confidence=LIKELY,
    title="Errors of samples are swallowed",
    what="""
    Where samples are loaded: `except:` or `except Exception:` that takes another sample instead, or
    leaves this one out, without a log, a count, or a warning.
    """,
    why="""
    It hides more than broken files. A wrong path, a full disk, a typo in a transform: all of them
    are an Exception, and training goes on with repeated samples, or with far fewer. If every sample
    fails, `return self[index + 1]` ends in a RecursionError after a thousand of them (measured),
    far from the cause. A line that is printed drowns in the output of all workers.
    """,
    instead="""
    Catch the errors you know (`OSError`, `PIL.UnidentifiedImageError`), and log each with its
    index. Or let it raise: `antifreeze.DataLoader(..., on_error="replace")` puts another sample in
    its place, counts, names every one, and stops when there are too many. `antifreeze scan` finds
    bad samples beforehand.
    """,
    not_flagged="""
    Handlers for named errors, those that raise, log, warn or count, and those that return None
    (AF401).
    """,
    bad="""
import random

from PIL import Image
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self, paths, transform):
        self.paths = paths
        self.transform = transform

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        try:
            return self.transform(Image.open(self.paths[index]))
        except Exception:
            return self[random.randrange(len(self))]


def load(paths, transform):
    return DataLoader(Pictures(paths, transform), batch_size=8, num_workers=4)
""",
    good="""
import logging
import random

from PIL import Image, UnidentifiedImageError
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self, paths, transform):
        self.paths = paths
        self.transform = transform

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        try:
            image = Image.open(self.paths[index])
        except (OSError, UnidentifiedImageError):
            logging.exception("sample %d: %s", index, self.paths[index])
            return self[random.randrange(len(self))]
        return self.transform(image)


def load(paths, transform):
    return DataLoader(Pictures(paths, transform), batch_size=8, num_workers=4)
""",
    also_bad=(
        """
import torchaudio
from torch.utils.data import Dataset


class Speech(Dataset):
    def __init__(self, cfg):
        self.files = cfg.files

    def __len__(self):
        return len(self.files)

    def __getitem__(self, idx):
        try:
            wave, rate = torchaudio.load(self.files[idx])
        except Exception as e:
            print(f"Error loading {self.files[idx]}: {e}")
            return self.__getitem__((idx + 1) % len(self))
        return wave
""",
        """
import json

from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Lines(IterableDataset):
    def __init__(self, path):
        self.path = path

    def __iter__(self):
        worker = get_worker_info()
        with open(self.path) as file:
            for number, line in enumerate(file):
                if worker and number % worker.num_workers != worker.id:
                    continue
                try:
                    yield json.loads(line)["text"]
                except:
                    continue


def load(path):
    return DataLoader(Lines(path), batch_size=8, num_workers=4)
""",
        """
import numpy as np
import torch.utils.data as data


class Clips(data.Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        try:
            clip = np.load(self.paths[index])
        except Exception:
            index = np.random.randint(len(self))
            return self.__getitem__(index)
        return clip
""",
    ),
    also_good=(
        """
from torch.utils.data import Dataset


class Rows(Dataset):
    def __init__(self, rows):
        self.rows = rows
        self.failed = 0

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        try:
            return float(self.rows[index])
        except Exception as error:
            raise ValueError(f"row {index} is no number") from error
""",
        """
import json
import logging

from torch.utils.data import Dataset

log = logging.getLogger(__name__)


class Rows(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        try:
            return json.loads(self.rows[index])
        except Exception:
            log.exception("row %d", index)
            return self[(index + 1) % len(self)]
""",
        """
from torch.utils.data import Dataset


class Rows(Dataset):
    def __init__(self, rows, labels):
        self.rows = rows
        self.labels = labels

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        try:
            label = self.labels[index]
        except KeyError:
            label = -1
        return self.rows[index], label
""",
    ),
    find=find,
)
