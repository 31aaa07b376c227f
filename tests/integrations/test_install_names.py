"""`antifreeze.install()` and names: who holds torch's class by which one, and what is set on it."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from .test_install import run

# From Python 3.14 on, torch's workers would run a script without a main guard again.
TORCH_FORKS = "import multiprocessing; multiprocessing.set_start_method('fork')"
IN_PLACE = {
    "a class derived from it": "type('Mine', (DataLoader,), {})",
    "a function that calls it": "lambda *given, **named: TORCHS(*given, **named)",
}


@pytest.mark.parametrize("new", IN_PLACE.values(), ids=IN_PLACE)
@pytest.mark.parametrize("when", ["before", "between", "after"])
def test_a_library_may_put_something_of_its_own_in_place_of_torchs_name(
    tmp_path: Path, new: str, when: str
) -> None:
    """Before antifreeze is imported, before it is installed, or later."""
    (tmp_path / "library.py").write_text(
        textwrap.dedent(
            f"""
            import torch.utils.data
            from torch.utils.data import DataLoader
            TORCHS = DataLoader
            def patch():
                setattr(torch.utils.data, "DataLoader", {new})
            if {when == "before"}:
                patch()
            """
        )
    )
    run(
        tmp_path,
        f"""
        if {when == "between"}:
            library.patch()
        antifreeze.install()
        if {when == "after"}:
            library.patch()
        for make in (torch.utils.data.DataLoader, TORCHS, library.TORCHS):
            loader = make([1, 2], num_workers=1)
            assert isinstance(loader, antifreeze.DataLoader), make
            assert isinstance(loader, TORCHS), make
            assert kind(iter(loader)) == "antifreeze._engine.iterator"
        """,
        first="import library\n",
    )


def test_a_name_that_another_module_has_imported_before_makes_loaders_of_ours(
    tmp_path: Path,
) -> None:
    (tmp_path / "early.py").write_text(
        "import functools\n"
        "from torch.utils.data import DataLoader as X\n"
        "from torch.utils.data import *\n"
        "TABLE = {'loader': X}\n"
        "part = functools.partial(X, batch_size=2)\n"
        "def made(data, make=X):\n"
        "    return make(data)\n"
    )
    run(
        tmp_path,
        """
        import early
        antifreeze.install()
        for make in (early.X, early.DataLoader, early.TABLE["loader"], early.part, early.made):
            assert isinstance(make([1, 2]), antifreeze.DataLoader), make
        """,
    )


def test_what_is_set_on_torchs_class_holds_for_our_loaders(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        antifreeze.install()
        calls = []
        def noted(name):
            behind = getattr(TORCHS, name)
            def call(self, *given, **named):
                calls.append(name)
                return behind(self, *given, **named)
            setattr(TORCHS, name, call)
        for name in ("__init__", "__iter__", "__len__"):
            noted(name)
        TORCHS.describe = lambda self: f"{len(self)} batches"
        loader = DataLoader([1, 2], num_workers=1)
        assert loader.describe() == "2 batches" and [int(batch) for batch in loader] == [1, 2]
        assert isinstance(loader, antifreeze.DataLoader)
        assert calls[:3] == ["__init__", "__len__", "__iter__"], calls
        """,
    )


def test_where_another_has_replaced_how_loaders_are_made_that_is_said(tmp_path: Path) -> None:
    run(
        tmp_path,
        f"""
        {TORCH_FORKS}
        antifreeze.install()
        TORCHS.__new__ = staticmethod(lambda cls, *given, **named: object.__new__(cls))
        assert [int(batch) for batch in DataLoader([1, 2], num_workers=1)] == [1, 2]
        """,
        said="on torch's workers, not on antifreeze's: another has replaced DataLoader.__new__",
    )


OF_ITS_OWN = """
import itertools
from torch.utils.data.dataloader import _DatasetKind, _MultiProcessingDataLoaderIter
class _Fake:
    _IterableDataset_len_called, _auto_collation, drop_last, in_order = None, False, False, True
    generator, prefetch_factor, timeout, worker_init_fn = None, 2, 0, None
    multiprocessing_context, persistent_workers = None, False
    pin_memory, pin_memory_device, num_workers = False, "", 2
    _dataset_kind = _DatasetKind.Iterable
    def __init__(self, data):
        self.data, self.dataset, self._index_sampler = data, self, itertools.count()
    def collate_fn(self, samples):
        return samples
    def _get_shared_seed(self, *given):
        return None
    def __iter__(self):
        return iter(self.data)
class DataLoader:
    def __init__(self, data):
        self.fake = _Fake(data)
    def __iter__(self):
        yield from _MultiProcessingDataLoaderIter(self.fake)
"""


def test_a_library_with_a_loader_of_its_own_works_as_it_did_and_that_is_said_once(
    tmp_path: Path,
) -> None:
    """As fastai does it; here is a library of its shape."""
    (tmp_path / "fast.py").write_text(OF_ITS_OWN)
    run(
        tmp_path,
        f"""
        {TORCH_FORKS}
        import fast, logging
        antifreeze.install()
        heard = []
        logging.getLogger("antifreeze").addHandler(logging.Handler())
        logging.getLogger("antifreeze").handlers[-1].emit = lambda r: heard.append(r.getMessage())
        for _ in range(2):
            assert sorted(fast.DataLoader([1, 2])) == [1, 1, 2, 2]  # each worker has all
        assert len(heard) == 1, heard
        assert "a fast._Fake runs on torch's workers" in heard[0]
        assert "its library's loader is a class of its own, and starts torch's" in heard[0]
        """,
    )
