"""`antifreeze.install()` in programs of their own: torch's class makes our loaders."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

from ..forked_programs import run_script
from ..photos import PHOTOS

START = """
    import torch, torch.utils.data, torch.utils.data.dataloader as module
    from torch.utils.data import DataLoader, Dataset, IterableDataset
    TORCHS = module.DataLoader
    import antifreeze
    def kind(iterator):
        return type(iterator).__module__
"""


def run(
    folder: Path, code: str, *, said: str | None = "", first: str = "", **environment: str
) -> str:
    """Run a program; `said`: what it must say on stderr, nothing if nothing is given."""
    script = folder / "script.py"
    script.write_text(first + textwrap.dedent(START) + textwrap.dedent(code))
    done = run_script(script, env=os.environ | environment, cwd=folder)
    assert done.returncode == 0, done.stderr
    if said == "":
        assert done.stderr == ""
    elif said is not None:
        assert said in done.stderr
    return done.stdout.strip()


def test_every_name_of_torchs_class_makes_a_loader_of_ours(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        held = {"before": DataLoader}
        antifreeze.install()
        antifreeze.install()
        for name in (held["before"], torch.utils.data.DataLoader, module.DataLoader):
            loader = name(list(range(10)), batch_size=5, num_workers=1)
            assert type(loader) is antifreeze.DataLoader
            assert isinstance(loader, name) and isinstance(loader, TORCHS)
            iterator = iter(loader)
            assert kind(iterator) == "antifreeze._engine.iterator"
            assert [batch.tolist() for batch in iterator] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
        assert torch.utils.data.DataLoader is TORCHS
        loader = DataLoader([1], on_error="replace")  # ours may be named
        assert loader.on_error == "replace"
        """,
    )


def test_a_subclass_is_ours_whenever_it_was_made(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        from typing import Generic, TypeVar
        T = TypeVar("T")
        class Before(DataLoader):
            def __init__(self, *args, extra=1, **kwargs):
                super().__init__(*args, **kwargs)
                self.extra = extra
            def __iter__(self):
                for batch in super().__iter__():
                    yield batch + self.extra
        class Further(Before):
            pass
        class PastOurs(DataLoader):
            def __init__(self, dataset):
                DataLoader.__init__(self, dataset, num_workers=1)
        made_before = Before([1, 2])
        antifreeze.install(sample_timeout=50)
        class After(DataLoader[T], Generic[T]):
            pass
        for cls in (Before, Further, PastOurs, After):
            loader = cls([1, 2])
            assert type(loader) is cls and isinstance(loader, antifreeze.DataLoader), cls
            assert len(list(loader)) == 2
            assert loader.sample_timeout == 50, cls
        assert [int(batch) for batch in Before([1, 2], num_workers=1)] == [2, 3]
        assert [int(batch) for batch in made_before] == [2, 3]  # it has become ours as well
        """,
    )


def test_a_loader_with_workers_of_its_own_is_left_alone_and_that_is_said_once(
    tmp_path: Path,
) -> None:
    run(
        tmp_path,
        """
        class Own(DataLoader):
            def _get_iterator(self):
                return module._MultiProcessingDataLoaderIter(self)
        before = DataLoader([1, 2], num_workers=1)
        antifreeze.install()
        assert type(before) is TORCHS and not isinstance(before, antifreeze.DataLoader)
        assert isinstance(before, torch.utils.data.DataLoader)
        import logging
        heard = []
        logging.getLogger("antifreeze").addHandler(logging.Handler())
        logging.getLogger("antifreeze").handlers[-1].emit = lambda r: heard.append(r.getMessage())
        for loader in (before, before, Own([1, 2], num_workers=1), Own([1, 2], num_workers=1)):
            assert len(list(loader)) == 2
        assert not isinstance(loader, antifreeze.DataLoader)
        assert len(heard) == 2, heard
        assert "made before antifreeze.install()" in heard[0]
        assert "__main__.Own" in heard[1] and "engine of its own" in heard[1]
        """,
    )


def test_a_subclass_that_has_names_of_ours_for_itself_is_left_alone_and_that_is_said(
    tmp_path: Path,
) -> None:
    run(
        tmp_path,
        """
        import logging
        heard = []
        logging.getLogger("antifreeze").addHandler(logging.Handler())
        logging.getLogger("antifreeze").handlers[-1].emit = lambda r: heard.append(r.getMessage())
        class Counts(DataLoader):
            def __init__(self, *given, **named):
                super().__init__(*given, **named)
                self.faults, self._book, self._backend = 0, {}, "lmdb"
        class Parent(DataLoader):
            pass
        class Child(Parent):
            @property
            def kind(self):
                return [self._set(clock) for clock in "ab"]
            def _set(self, value):
                self._clock = value
        class Words:
            on_error = "log"
        class Stats(DataLoader):  # what is for the user alone may be another's
            snapshot = None
            def stats(self):
                self.explain = "x"
                return "mine"
        antifreeze.install()
        class Later(DataLoader, Words):
            pass
        for cls in (Counts, Parent, Child, Later):
            for workers in (0, 1, 1):
                loader = cls([1, 2], num_workers=workers)
                assert len(list(loader)) == 2 and not isinstance(loader, antifreeze.DataLoader)
        assert loader.on_error == "log" and len(heard) == 4, heard
        assert "__main__.Counts runs on torch's workers" in heard[0]
        assert "uses _backend, _book, faults, which antifreeze needs, for" in heard[0]
        assert "_clock" in heard[1] and "_clock" in heard[2] and "on_error" in heard[3]

        loader = Stats([1, 2], num_workers=1)
        assert isinstance(loader, antifreeze.DataLoader)
        assert loader.stats() == "mine" and len(list(loader)) == 2 and "Stats" in repr(loader)
        class TooLate(Stats):  # its base is ours by now
            def _lineage(self):
                pass
        assert len(heard) == 5 and "TooLate uses _lineage" in heard[4], heard
        class OnPurpose(antifreeze.DataLoader):
            on_error = "skip"
        assert len(heard) == 5, heard
        """,
    )


def test_other_bases_of_a_subclass_make_it_as_they_did(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        class Mixed:
            def __new__(cls, *given, **named):
                made = super().__new__(cls)
                made.given = given, named
                return made
        class First(Mixed, DataLoader):
            pass
        class Last(DataLoader, Mixed):
            pass
        antifreeze.install()
        for cls in (First, Last):
            loader = cls([1, 2], num_workers=1)
            assert isinstance(loader, antifreeze.DataLoader)
            assert loader.given == (([1, 2],), {"num_workers": 1}), cls
            assert len(list(loader)) == 2
        """,
    )


def test_options_hold_for_loaders_that_do_not_say_otherwise(tmp_path: Path) -> None:
    run(
        tmp_path,
        PHOTOS
        + textwrap.dedent(
            """
            import inspect
            antifreeze.install(on_error="replace", fault_log="faults.jsonl")
            antifreeze.install(sample_timeout=60)  # the others stay
            loader = DataLoader(Photos(), batch_size=5)
            assert [b.tolist() for b in loader] == [[0, 1, 2, 4, 4], [5, 6, 7, 8, 9]]
            assert loader.sample_timeout == 60 and len(list(open("faults.jsonl"))) == 1
            antifreeze.install(on_error="skip")
            assert [len(b) for b in DataLoader(Photos(), batch_size=5)] == [4, 5]
            try:
                list(DataLoader(Photos(), batch_size=5, on_error="raise"))
                raise SystemExit("it did not raise")
            except OSError:
                pass
            signature = inspect.signature(antifreeze.DataLoader)
            assert signature.parameters["sample_timeout"].default == 60
            """
        ),
        said=None,
    )


def test_a_default_that_does_not_fit_a_loader_is_not_used_for_it(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        import json, warnings
        class Stream(IterableDataset):
            def __iter__(self):
                return iter(range(4))
        json.dump({"length": 10, "bad": [{"index": 3}]}, open("bad.json", "w"))
        antifreeze.install(on_error="replace", quarantine="bad.json")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                assert [int(i) for i in DataLoader(Stream(), batch_size=None)] == [0, 1, 2, 3]
        assert len(caught) == 1 and "on_error='replace'" in str(caught[0].message), caught
        assert caught[0].filename.endswith("script.py")
        ten, eleven = (DataLoader(list(range(n)), batch_size=11) for n in (10, 11))
        assert next(iter(ten)).tolist() == [0, 1, 2, 4, 4, 5, 6, 7, 8, 9]  # the one scanned
        assert next(iter(eleven)).tolist() == list(range(11))
        """,
        said=None,
    )


def test_files_are_those_of_the_folder_where_they_were_named(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        import json, os
        from pathlib import Path
        class PastOurs(DataLoader):
            def __init__(self, dataset, **named):
                TORCHS.__init__(self, dataset, **named)
        json.dump({"length": 10, "bad": [{"index": 3}]}, open("bad.json", "w"))
        antifreeze.install(on_error="skip", quarantine=Path("bad.json"), fault_log="log.jsonl")
        os.mkdir("out"), os.chdir("out"), os.remove("../bad.json")  # it was read
        for cls in (DataLoader, PastOurs):
            loader = cls(list(range(10)), batch_size=5)
            assert [len(batch) for batch in loader] == [4, 5], cls
            assert Path(loader.fault_log) == Path("../log.jsonl").resolve()
        assert len(list(open("../log.jsonl"))) == 2
        antifreeze.install(quarantine=iter([1, 2]))
        assert [len(batch) for batch in DataLoader(list(range(10)), batch_size=5)] == [3, 5]
        """,
        said="1 skipped (quarantined): 3",
    )


def test_bad_options_are_refused_by_install_and_change_nothing(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        for options, kind in (
            ({"on_error": "ignore"}, ValueError),
            ({"sample_timeout": -1}, ValueError),
            ({"worker_memory": "much"}, TypeError),
            ({"fault_log": 3}, TypeError),
            ({"quarantine": [1]}, ValueError),  # without what to do about them
            ({"quarantine": "missing.json", "on_error": "skip"}, ValueError),
            ({"num_workers": 3}, TypeError),
        ):
            try:
                antifreeze.install(**options)
            except kind as error:
                assert next(iter(options)) in str(error) or "missing.json" in str(error)
            else:
                raise SystemExit(f"{options} was taken")
            assert type(DataLoader([1])) is TORCHS
        """,
    )


def test_switched_off_install_leaves_torch_alone(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        antifreeze.install(on_error="replace")
        assert type(DataLoader([1])) is TORCHS and "__new__" not in vars(TORCHS)
        """,
        ANTIFREEZE="off",
    )


def test_loaders_are_copied_and_pickled_as_before(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        import copy, pickle
        of_torch = pickle.dumps(DataLoader([1, 2]))
        antifreeze.install()
        assert type(pickle.loads(of_torch)) is TORCHS  # as it was
        assert [int(batch) for batch in pickle.loads(of_torch)] == [1, 2]
        loader = DataLoader([1, 2], sample_timeout=9)
        for other in (copy.copy(loader), copy.deepcopy(loader), pickle.loads(pickle.dumps(loader))):
            assert type(other) is antifreeze.DataLoader and other.sample_timeout == 9
            assert [int(batch) for batch in other] == [1, 2]
        """,
    )


def test_processes_that_multiprocessing_starts_have_it_too(tmp_path: Path) -> None:
    out = run(
        tmp_path,
        """
        import multiprocessing as mp
        def told(depth, method):
            loader = DataLoader([1], num_workers=1)
            print(method, depth, type(loader).__module__, loader.sample_timeout, len(list(loader)))
            if depth:
                start(depth - 1, method)
        def start(depth, method):
            import sys
            sys.stdout.flush()
            child = mp.get_context(method).Process(target=told, args=(depth, method))
            child.start()
            child.join()
            assert child.exitcode == 0
        if __name__ == "__main__":
            lost = antifreeze.policies.replacing(by=lambda index, attempt: 0)  # cannot be pickled
            antifreeze.install(sample_timeout=77, on_error=lost)
            for method in ("fork", "spawn", "forkserver"):
                start(1, method)
        """,
        said="on_error of install() cannot be sent to processes that are spawned",
    )
    assert sorted(out.splitlines()) == sorted(
        f"{method} {depth} antifreeze.loader 77 1"
        for method in ("fork", "spawn", "forkserver")
        for depth in (0, 1)
    )


def test_an_option_that_does_not_arrive_is_named_and_no_process_dies_of_it(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        import json, multiprocessing as mp, os
        def told(loaded):
            loader = DataLoader(list(range(10)), batch_size=5)
            assert isinstance(loader, antifreeze.DataLoader) and loader.sample_timeout == 77
            assert [len(batch) for batch in loader] == loaded
        def start(*loaded):
            child = mp.get_context("spawn").Process(target=told, args=(list(loaded),))
            child.start()
            child.join()
            assert child.exitcode == 0
        if __name__ == "__main__":
            class Bad(Exception):  # the child does not have it
                pass
            json.dump({"length": 10, "bad": [{"index": 3}]}, open("bad.json", "w"))
            antifreeze.install(on_error="skip", quarantine="bad.json", sample_timeout=77)
            os.mkdir("out"), os.chdir("out"), os.remove("../bad.json")
            start(4, 5)
            antifreeze.install(on_error=antifreeze.policies.skipping(only=(Bad,)))
            start(5, 5)
        """,
        said="no on_error of its parent's install(): its loaders do without (AttributeError: ",
    )


RAY = """
    from torch.utils.data import DataLoader
    def prepare_data_loader(data_loader, move=True):
        return DataLoader(dataset=data_loader.dataset, batch_size=data_loader.batch_size)
"""


def test_a_library_that_builds_loaders_anew_keeps_our_options(tmp_path: Path) -> None:
    """As Ray Train does it; here is a library of its shape."""
    for package in ("ray", "ray/train", "ray/train/torch"):
        (tmp_path / package).mkdir(exist_ok=True)
        (tmp_path / package / "__init__.py").write_text("")
    (tmp_path / "ray/train/torch/train_loop_utils.py").write_text(textwrap.dedent(RAY))
    (tmp_path / "ray/train/torch/__init__.py").write_text(
        "from .train_loop_utils import prepare_data_loader\n"
    )
    code = """
        def prepared():
            from ray.train.torch import prepare_data_loader
            loader = prepare_data_loader(DataLoader([1, 2], batch_size=2, on_error="replace"))
            assert type(loader) is antifreeze.DataLoader and loader.on_error == "replace"
            assert antifreeze.DataLoader([1]).on_error == "raise"
    """
    first = "import ray.train.torch\nantifreeze.install()\nprepared()"
    later = "antifreeze.install()\nprepared()"
    for end in (first, later):
        run(tmp_path, textwrap.dedent(code) + end)


def test_a_library_that_is_not_as_expected_works_as_it_did_and_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "accelerate").mkdir()
    (tmp_path / "accelerate/__init__.py").write_text("")
    (tmp_path / "accelerate/data_loader.py").write_text("works = True\n")
    run(
        tmp_path,
        """
        antifreeze.install()
        import accelerate.data_loader
        assert accelerate.data_loader.works
        assert accelerate.data_loader.__loader__ is accelerate.data_loader.__spec__.loader
        assert "antifreeze" not in type(accelerate.data_loader.__loader__).__module__
        """,
        said="accelerate.data_loader is not as expected",
    )


def test_install_itself_starts_nothing_and_imports_no_library(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        import sys, threading, psutil
        antifreeze.install()
        assert repr(sys.meta_path[0]).startswith("<antifreeze: waits for accelerate.data_loader, ")
        assert threading.active_count() == 1 and psutil.Process().children() == []
        for library in ("accelerate", "lightning", "transformers", "ray", "torchdata", "timm"):
            assert library not in sys.modules
        """,
    )
