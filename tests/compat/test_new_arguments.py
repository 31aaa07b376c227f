"""A torch whose loader takes arguments that this package has never heard of."""

from __future__ import annotations

import inspect
import textwrap
from pathlib import Path

import pytest
from torch.utils.data import DataLoader as TorchLoader

import antifreeze

from ..forked import run_forked
from ..forked_programs import run_script

# torch's class itself, with a constructor that has two more keywords, and says what it gets.
NEWER = """
import inspect, warnings, torch
from torch.utils.data import dataloader
TorchLoader = dataloader.DataLoader
real = TorchLoader.__init__
got = []
def __init__(self, dataset, batch_size=1, shuffle=None, sampler=None, batch_sampler=None,
             num_workers=0, collate_fn=None, pin_memory=False, drop_last=False, timeout=0,
             worker_init_fn=None, multiprocessing_context=None, generator=None, *,
             prefetch_factor=None, persistent_workers=False, pin_memory_device="", in_order=True,
             worker_method="multiprocessing", use_shared_memory=False):
    given = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
    got.append((given.pop("worker_method"), given.pop("use_shared_memory")))
    if worker_method not in ("multiprocessing", "thread"):
        raise ValueError(f"worker_method should be a method, but got {worker_method!r}")
    real(self, **given)
    self.worker_method = worker_method
TorchLoader.__init__ = __init__
caught = warnings.catch_warnings(record=True).__enter__()
warnings.simplefilter("always")
# Python's own, from 3.12 on, at every fork: it also counts threads that are just ending.
warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
import antifreeze
from antifreeze import DataLoader
EXPECTED = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
def engine(loader):
    iterator = iter(loader)
    assert [batch.tolist() for batch in iterator] == EXPECTED
    return type(iterator).__module__.partition(".")[0]
def notices():
    return [str(each.message) for each in caught]
"""


def run(program: str, before: str = NEWER) -> None:
    """Run a program in a fork, where it changes the torch that is there already."""

    def execute() -> None:
        exec(
            compile(before + textwrap.dedent(program), "<string>", "exec"), {"__name__": "program"}
        )

    done = run_forked(execute)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_with_a_torch_that_has_none_the_constructor_is_as_it_is_written() -> None:
    assert not hasattr(antifreeze.DataLoader.__init__, "__wrapped__")
    parameters = inspect.signature(antifreeze.DataLoader.__init__).parameters
    kinds = {each.kind for each in parameters.values()}
    assert inspect.Parameter.VAR_KEYWORD not in kinds
    assert inspect.Parameter.VAR_POSITIONAL not in kinds
    torchs = list(inspect.signature(TorchLoader.__init__).parameters)
    assert list(parameters)[: len(torchs)] == torchs


def test_the_signature_shows_them_and_the_defaults_stay_live() -> None:
    run(
        """
        def shown():
            return inspect.signature(DataLoader.__init__).parameters
        assert shown()["worker_method"].default == "multiprocessing"
        assert shown()["use_shared_memory"].default is False
        assert shown()["worker_method"].kind is inspect.Parameter.KEYWORD_ONLY
        assert all(each.kind is not each.VAR_KEYWORD for each in shown().values())
        assert "worker_method" in inspect.signature(DataLoader).parameters
        assert shown()["batch_size"].annotation == "int | None"
        assert shown()["sample_timeout"].default == "auto"
        antifreeze.install(sample_timeout=7.0)
        assert shown()["sample_timeout"].default == 7.0
        assert DataLoader(range(3)).sample_timeout == 7.0
        assert DataLoader(range(3), sample_timeout=8.0).sample_timeout == 8.0
        """
    )


@pytest.mark.parametrize("given", ["", "worker_method='multiprocessing', use_shared_memory=False"])
def test_torchs_default_is_ours_as_usual(given: str) -> None:
    run(
        f"""
        for workers in (0, 2):
            loader = DataLoader(range(10), 4, num_workers=workers, {given})
            assert engine(loader) == "antifreeze"
            assert loader.worker_method == "multiprocessing" and loader.use_shared_memory is False
        assert got == [("multiprocessing", False)] * 2 and notices() == []
        """
    )


def test_another_value_is_passed_on_and_such_a_loader_is_left_to_torch_with_a_notice() -> None:
    run(
        """
        for workers in (0, 2):
            loader = DataLoader(range(10), 4, num_workers=workers, use_shared_memory=True)
            assert engine(loader) == "torch" and loader.use_shared_memory is True
            loader.stats(), loader.explain(), repr(loader), loader.snapshot()
        assert got == [("multiprocessing", True)] * 2
        (notice,) = notices()
        assert notice.startswith("antifreeze does not know use_shared_memory, which torch 2.")
        assert engine(DataLoader(range(10), 4)) == "antifreeze"  # the others stay
        assert len(notices()) == 1
        """
    )


def test_two_of_them_are_both_named() -> None:
    run(
        """
        loader = DataLoader(range(10), 4, worker_method="thread", use_shared_memory=True)
        assert engine(loader) == "torch"
        assert "does not know worker_method and use_shared_memory" in notices()[0]
        """
    )


def test_trainers_build_such_a_loader_again_from_its_signature_and_attributes() -> None:
    run(
        """
        loader = DataLoader(range(10), 4, worker_method="thread", use_shared_memory=True)
        parameters = inspect.signature(type(loader).__init__).parameters
        public = {n: v for n, v in vars(loader).items() if not n.startswith("_")}
        assert set(public) <= set(parameters)  # else a trainer's call would raise
        public = {n: v for n, v in public.items() if n not in ("sampler", "batch_sampler")}
        again = type(loader)(**public)
        assert (again.worker_method, again.use_shared_memory) == ("thread", True)
        assert got[-1] == ("thread", True)
        """
    )


def test_an_argument_that_neither_knows_is_a_type_error_as_python_says_it() -> None:
    run(
        """
        try:
            DataLoader(range(10), worker_methods="thread")
        except TypeError as error:
            said = str(error)
        assert said.startswith("DataLoader.__init__() got an unexpected keyword argument"), said
        assert "'worker_methods'" in said
        """
    )


def test_torchs_own_words_about_a_wrong_value_come_through() -> None:
    run(
        """
        try:
            DataLoader(range(10), worker_method="magic")
        except ValueError as error:
            assert "worker_method should be a method, but got 'magic'" in str(error)
        else:
            raise SystemExit("it was taken")
        """
    )


def test_torchs_class_and_its_subclasses_take_them_after_install() -> None:
    run(
        """
        class Mine(TorchLoader):
            pass
        antifreeze.install()
        for kind in (TorchLoader, Mine):
            loader = kind(range(10), 4, use_shared_memory=False)
            assert isinstance(loader, DataLoader) and engine(loader) == "antifreeze"
            loader = kind(range(10), 4, worker_method="thread")
            assert engine(loader) == "torch" and loader.worker_method == "thread"
        """
    )


def test_a_loader_made_past_our_constructor_is_judged_by_its_attributes() -> None:
    run(
        """
        class Mine(DataLoader):
            def __init__(self, dataset, **named):
                TorchLoader.__init__(self, dataset, **named)
        assert engine(Mine(range(10), batch_size=4)) == "antifreeze"
        assert engine(Mine(range(10), batch_size=4, worker_method="thread")) == "torch"
        """
    )


def test_a_constructor_that_hides_its_parameters_gets_what_torchs_has_today() -> None:
    hidden = """
from torch.utils.data import dataloader
real = dataloader.DataLoader.__init__
def __init__(self, *arguments, **named):
    real(self, *arguments, **named)
dataloader.DataLoader.__init__ = __init__
from antifreeze import DataLoader
"""
    run(
        """
        loader = DataLoader(range(10), batch_size=4, num_workers=2, in_order=False)
        assert loader.batch_size == 4 and loader.in_order is False
        assert sorted(i for batch in loader for i in batch.tolist()) == list(range(10))
        """,
        before=hidden,
    )


def test_a_loader_that_torch_serves_says_that_nothing_was_counted() -> None:
    run(
        """
        for workers in (0, 1):
            loader = DataLoader(range(10), 4, num_workers=workers, worker_method="thread")
            assert engine(loader) == "torch"
            assert "torch's own loader does the work" in str(loader.explain())
        """
    )


FALLS_BACK = {
    "an old torch": ("torch.__version__ = '2.5.1'\n", ""),
    "an unknown argument": (NEWER.partition("caught =")[0], ', worker_method="thread"'),
}


@pytest.mark.parametrize("how", FALLS_BACK)
@pytest.mark.parametrize("installed", [False, True])
@pytest.mark.parametrize("strict", [False, True], ids=["", "warnings are errors"])
def test_there_is_one_notice_and_it_ends_no_program(
    how: str, installed: bool, strict: bool, tmp_path: Path
) -> None:
    change, option = FALLS_BACK[how]
    script = tmp_path / "program.py"
    script.write_text(f"""import torch, warnings
if {strict}:
    warnings.simplefilter("error")  # as with -W error
{change}
import antifreeze
if {installed}:
    antifreeze.install()
    from torch.utils.data import DataLoader
else:
    from antifreeze import DataLoader
for workers in (0, 1, 1):
    loader = DataLoader(range(10), 4, num_workers=workers{option})
    assert [len(batch) for batch in loader] == [4, 4, 2]
    assert not type(iter(loader)).__module__.startswith("antifreeze")
""")
    done = run_script(script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("to silence this notice") == 1, done.stderr
    assert "runs on torch's workers" not in done.stderr
