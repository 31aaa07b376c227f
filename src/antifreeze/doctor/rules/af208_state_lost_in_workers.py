"""A dataset counts or collects while loading, and the main process looks at its own copy."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.definitions import Dataset
from ..source.view import View
from ..source.wording import text_of
from .base import LIKELY, WRONG_DATA, Hit, Rule
from .changing import changed, has_plain


def find(view: View) -> Iterator[Hit]:
    changing: dict[str, tuple[Dataset, set[str]]] = {}
    for dataset in _datasets(view):
        if dataset.workers is not None and dataset.workers.any:
            names = _changed_while_loading(dataset, view)
            if names:
                changing[dataset.qualified] = (dataset, names)
    if not changing:
        return
    in_workers = {code.function.node for code in view.worker_code}
    for node in view.module.nodes(ast.Attribute):
        if not isinstance(node.ctx, ast.Load) or view.function_around(node) in in_workers:
            continue
        owner = _dataset_behind(node.value, view)
        if owner is None or owner not in changing:
            continue
        dataset, names = changing[owner]
        attribute = node.attr if node.attr in names else _read_by(node, dataset, names, view)
        if attribute and not _before_the_loop(node, dataset, view):
            yield Hit(
                node,
                f"workers change `self.{attribute}` in copies of `{dataset.name}` of their own:"
                f" `{text_of(node)}` here stays as it was",
            )


def _datasets(view: View) -> Iterator[Dataset]:
    seen = set()
    for each in (*view.datasets, *(loader.dataset for loader in view.loaders)):
        if each is not None and each.qualified not in seen:
            seen.add(each.qualified)
            yield each


def _changed_while_loading(dataset: Dataset, view: View) -> set[str]:
    found: set[str] = set()
    for function in dataset.loading:
        for node in function.nodes():
            owner = changed(node)
            if (
                isinstance(owner, ast.Attribute)
                and function.module.class_of_self(owner.value) is not None
            ):
                found.add(owner.attr)
    return {name for name in found if has_plain(name, dataset, view)}


def _dataset_behind(node: ast.expr, view: View) -> str | None:
    """Give the class of the dataset that an expression is: `dataset`, or `loader.dataset`."""
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return None
    if view.module.class_of_self(node) is not None:
        return None
    if isinstance(node, ast.Attribute) and node.attr == "dataset":
        loader = view.loader_of(node.value)
        if loader is not None:
            return loader.dataset.qualified if loader.dataset is not None else None
    for value in view.origins(node):
        if isinstance(value, ast.Call):
            found = view.class_of(value.func)
            if found is not None:
                return found.qualified
    return None


def _read_by(node: ast.Attribute, dataset: Dataset, names: set[str], view: View) -> str:
    """Give the attribute that a method reads which is called here: `dataset.report()`."""
    parent = view.module.scopes.parents.get(node)
    if not isinstance(parent, ast.Call) or parent.func is not node:
        return ""
    method = dataset.method(node.attr)
    if method is None or method in dataset.loading or node.attr.startswith("__"):
        return ""
    reads = {
        each.attr
        for each in method.nodes()
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Load)
    }
    return min(names & reads, default="")


def _before_the_loop(node: ast.AST, dataset: Dataset, view: View) -> bool:
    """Say whether it is read before anything was loaded: all loops of its function come later."""
    function, around = view.function_around(node), view.loop_around(node)
    if around is not None:
        return False
    loops = [
        loop
        for loop in view.loops
        if view.function_around(loop.place) is function
        and loop.loader is not None
        and loop.loader.dataset is not None
        and loop.loader.dataset.qualified == dataset.qualified
    ]
    line = getattr(node, "lineno", 0)
    return bool(loops) and all(getattr(loop.place, "lineno", 0) > line for loop in loops)


RULE = Rule(
    code="AF208",
    name="state-lost-in-workers",
    severity=WRONG_DATA,
    confidence=LIKELY,
    title="What workers note in the dataset is lost",
    what="""
    A dataset that counts or collects in an attribute while it loads samples (`self.seen += 1`,
    `self.bad.append(...)`), and code in the main process that reads it.
    """,
    why="""
    Every worker has a copy of the dataset. What `__getitem__` changes there, it changes in that
    copy, which ends with the worker: the main process sees an empty list and a zero, and takes it
    for good news. Asked for in [pytorch#15849](https://github.com/pytorch/pytorch/issues/15849) and
    [pytorch#12536](https://github.com/pytorch/pytorch/issues/12536). With `num_workers=0` it works,
    which is how it was tried.
    """,
    instead="""
    Return it with the sample (an index, a flag) and count in the loop; or count in a
    `multiprocessing.Value`; or let antifreeze's loader keep the list of bad samples:
    `loader.faults`.
    """,
    not_flagged="""
    Attributes that only loading reads. `multiprocessing.Value`, tensors and other objects that may
    be shared. Reads before the first loop. Loaders without workers.
    """,
    bad="""
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, rows):
        self.rows = rows
        self.bad = []

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        if self.rows[index] < 0:
            self.bad.append(index)
        return abs(self.rows[index])


def main(rows):
    dataset = Rows(rows)
    for batch in DataLoader(dataset, batch_size=8, num_workers=4):
        print(batch)
    print("bad samples:", dataset.bad)
""",
    good="""
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return abs(self.rows[index]), self.rows[index] < 0


def main(rows):
    dataset = Rows(rows)
    bad = 0
    for batch, is_bad in DataLoader(dataset, batch_size=8, num_workers=4):
        print(batch)
        bad += int(is_bad.sum())
    print("bad samples:", bad)
""",
    also_bad=(
        """
from collections import Counter

import torch.utils.data as data


class Pictures(data.Dataset):
    def __init__(self, paths, read):
        self.paths, self.read = paths, read
        self.stats = Counter()

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, idx):
        return self._load(idx)

    def _load(self, idx):
        self.stats["loaded"] += 1
        return self.read(self.paths[idx])

    def report(self):
        return dict(self.stats)


def train(paths, read, cfg):
    loader = data.DataLoader(Pictures(paths, read), num_workers=cfg.workers)
    for epoch in range(cfg.epochs):
        for batch in loader:
            print(len(batch))
        print(epoch, loader.dataset.report())
""",
        """
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Stream(IterableDataset):
    def __init__(self, n):
        self.n = n
        self.count = 0

    def __iter__(self):
        info = get_worker_info()
        for x in range(info.id, self.n, info.num_workers):
            self.count += 1
            yield x


if __name__ == "__main__":
    stream = Stream(100)
    loader = DataLoader(stream, num_workers=2)
    for x in loader:
        pass
    print(stream.count)
""",
    ),
    also_good=(
        """
import multiprocessing

from torch.utils.data import DataLoader, Dataset


class Counted(Dataset):
    def __init__(self, rows):
        self.rows = rows
        self.count = multiprocessing.Value("i", 0)
        self.names = []
        self.names.append("rows")

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        with self.count.get_lock():
            self.count.value += 1
        return self.rows[index]


def main(rows):
    dataset = Counted(rows)
    for batch in DataLoader(dataset, batch_size=8, num_workers=4):
        print(batch)
    print(dataset.count.value, dataset.names)
""",
        """
from torch.utils.data import DataLoader, Dataset


class Counted(Dataset):
    def __init__(self, rows):
        self.rows = rows
        self.count = 0

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        self.count += 1
        return self.rows[index]


def main(rows):
    dataset = Counted(rows)
    print("count at first:", dataset.count)
    for batch in DataLoader(dataset, batch_size=8, num_workers=4):
        print(batch, len(dataset.rows))
""",
        """
from torch.utils.data import DataLoader, Dataset


class Counted(Dataset):
    def __init__(self, rows):
        self.rows = rows
        self.count = 0

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        self.count += 1
        return self.rows[index]


def main(rows):
    dataset = Counted(rows)
    for batch in DataLoader(dataset, batch_size=8):
        print(batch)
    print(dataset.count)
""",
    ),
    find=find,
)
