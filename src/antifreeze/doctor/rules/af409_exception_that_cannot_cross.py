"""An exception whose class other processes cannot find."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.view import View
from .base import FREEZE, LIKELY, POSSIBLE, Hit, Rule


def find(view: View) -> Iterator[Hit]:
    for code in view.worker_code:
        if code.only_ours:
            continue  # it sends name and traceback of what cannot be sent
        for node in code.function.nodes():
            if not isinstance(node, ast.Raise) or node.exc is None:
                continue
            called = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            local = _local_class(called, view)
            if local is not None:
                yield Hit(
                    node,
                    f"`{local.name}` is defined inside a function, so the exception cannot be sent"
                    " to the main process: the worker prints a traceback, and the loop waits for"
                    " ever",
                    LIKELY if code.workers is not None else POSSIBLE,
                )


def _local_class(node: ast.expr, view: View) -> ast.ClassDef | None:
    found = view.class_of(node)
    if found is None or "<locals>" not in found.qualified:
        return None
    return found.node


RULE = Rule(
    code="AF409",
    name="exception-that-cannot-cross",
    severity=FREEZE,
    confidence=LIKELY,
    title="An exception that a worker cannot send",
    what="""
    Code that runs in workers raises an exception whose class is defined inside a function.
    """,
    why="""
    The class is sent by its name, and a class in a function has none that another process could
    import. It fails in a background thread of the worker (`Can't pickle local object`), which
    drops the message and goes on. With torch 2.13 the loop then waits for ever, and the real error
    is gone. Seen with classes of extension modules, too:
    [safetensors#492](https://github.com/safetensors/safetensors/issues/492).
    """,
    instead="""
    Define the exception at the top of a module.
    """,
    not_flagged="""
    Exceptions of a module, also with constructors of several arguments: torch 2.13 sends their
    text. antifreeze's loader sends name, text and traceback of what cannot be sent.
    """,
    bad="""
from torch.utils.data import DataLoader, Dataset


def make_loader(rows):
    class EmptyRow(Exception):
        pass

    class Rows(Dataset):
        def __len__(self):
            return len(rows)

        def __getitem__(self, index):
            if not rows[index]:
                raise EmptyRow(f"row {index}")
            return rows[index]

    return DataLoader(Rows(), batch_size=8, num_workers=4)
""",
    good="""
from torch.utils.data import DataLoader, Dataset


class EmptyRow(Exception):
    pass


def make_loader(rows):
    class Rows(Dataset):
        def __len__(self):
            return len(rows)

        def __getitem__(self, index):
            if not rows[index]:
                raise EmptyRow(f"row {index}")
            return rows[index]

    return DataLoader(Rows(), batch_size=8, num_workers=4)
""",
    also_bad=(
        """
import torch
from torch.utils.data import DataLoader


def collate(samples):
    class ShapesDiffer(ValueError):
        pass

    if len({each.shape for each in samples}) > 1:
        raise ShapesDiffer
    return torch.stack(samples)


def load(dataset, args):
    return DataLoader(dataset, args.batch, num_workers=args.workers, collate_fn=collate)
""",
        """
import torch.utils.data as td


class Clips(td.Dataset):
    def __init__(self, clips):
        self.clips = clips

    def __len__(self):
        return len(self.clips)

    def __getitem__(self, i):
        return self.check(self.clips[i])

    def check(self, clip):
        class Short(RuntimeError):
            def __init__(self, length):
                super().__init__(f"only {length} frames")

        if len(clip) < 16:
            raise Short(len(clip))
        return clip


loader_options = {"batch_size": 4, "num_workers": 2}


def clips(found):
    return td.DataLoader(Clips(found), **loader_options)
""",
    ),
    also_good=(
        """
from torch.utils.data import DataLoader, Dataset


class Broken(Exception):
    def __init__(self, path, reason):
        super().__init__(f"{path}: {reason}")
        self.path = path


class Rows(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        if not self.rows[index]:
            raise Broken(index, "empty")
        return self.rows[index]


def load(rows):
    return DataLoader(Rows(rows), num_workers=2)
""",
        """
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    class Empty(Exception):
        pass

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        if not self.rows[index]:
            raise self.Empty(index)
        return self.rows[index]


def load(rows):
    return DataLoader(Rows(rows), num_workers=2)
""",
    ),
    find=find,
    follows=True,
)
