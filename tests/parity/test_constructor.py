"""Constructing a loader: arguments, attributes, errors, length."""

import inspect
import multiprocessing
import re
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psutil
import pytest
import torch
from torch.utils.data import IterableDataset

from antifreeze import DataLoader
from tests.torch_versions import NAMES_PREFETCH_FACTOR

from .observe import LOADERS, LoaderClass, caught_warnings, first_line, public, whole_text
from .programs import MapRows, as_list
from .wrong_arguments import ROWS, STREAM, WRONG, Wrong


def wrong_id(wrong: Wrong) -> str:
    """Name a case by what is given."""
    return ",".join(f"{name}={value!r}" for name, value in wrong.arguments.items())


@pytest.mark.parametrize("wrong", WRONG, ids=wrong_id)
def test_a_wrong_argument_fails_in_the_constructor_with_torchs_type_and_phrase(
    wrong: Wrong, loader_class: LoaderClass
) -> None:
    with pytest.raises(wrong.kind) as caught:
        loader_class(wrong.dataset, **wrong.arguments)
    assert wrong.phrase in str(caught.value)


@pytest.mark.parametrize("wrong", [case for case in WRONG if case.phrase], ids=wrong_id)
def test_the_first_line_of_an_argument_error_is_torchs(wrong: Wrong, ours: LoaderClass) -> None:
    with pytest.raises(wrong.kind) as theirs:
        LOADERS["torch"](wrong.dataset, **wrong.arguments)
    with pytest.raises(wrong.kind) as mine:
        ours(wrong.dataset, **wrong.arguments)
    assert first_line(mine.value) == first_line(theirs.value)


@pytest.mark.parametrize("wrong", WRONG, ids=wrong_id)
def test_our_argument_errors_name_the_argument_and_the_value(
    wrong: Wrong, ours: LoaderClass
) -> None:
    with pytest.raises(wrong.kind) as caught:
        ours(wrong.dataset, **wrong.arguments)
    text = whole_text(caught.value)
    assert wrong.argument in text
    assert repr(wrong.value) in text or f"{wrong.argument}={wrong.value}" in text


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"timeout": 3}, AssertionError),
        ({"num_workers": 1.5}, TypeError),
        ({"generator": 5}, TypeError),
        ({"sampler": 5}, TypeError),
        ({"batch_sampler": 5}, TypeError),
    ],
    ids=str,
)
def test_what_torch_notices_at_the_first_loop_has_the_same_type(
    arguments: dict[str, Any], kind: type[Exception], loader_class: LoaderClass
) -> None:
    with pytest.raises(kind):
        next(iter(loader_class(ROWS, **arguments)))


def test_workers_that_may_fetch_nothing_ahead_are_an_assertion_error(
    which: str, loader_class: LoaderClass, monkeypatch: pytest.MonkeyPatch
) -> None:
    complaints: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)
    is_named = NAMES_PREFETCH_FACTOR or loader_class is not LOADERS["torch"]
    with pytest.raises(AssertionError, match="prefetch_factor" if is_named else "^$"):
        iter(loader_class(ROWS, prefetch_factor=0, num_workers=1))
    # Ours only: torch's half-made iterator complains again when it is dropped.
    assert which == "torch" or loader_class is LOADERS["torch"] or not complaints


@pytest.mark.parametrize("name", ["collate_fn", "worker_init_fn"])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_function_argument_that_cannot_be_called_is_a_type_error(
    name: str, workers: int, loader_class: LoaderClass
) -> None:
    if name == "worker_init_fn" and not workers:
        pytest.skip("there is no worker to begin")
    with pytest.raises(TypeError, match="not callable"):  # ours already in the constructor
        list(loader_class(ROWS, num_workers=workers, **{name: 5}))


def test_shuffling_an_empty_dataset_is_refused_with_torchs_words(
    loader_class: LoaderClass,
) -> None:
    with pytest.raises(ValueError, match="num_samples should be a positive integer value"):
        loader_class(MapRows(0), shuffle=True)


def test_an_unknown_argument_is_a_type_error(loader_class: LoaderClass) -> None:
    with pytest.raises(TypeError, match="num_wokers"):
        loader_class(ROWS, num_wokers=2)


def test_the_late_arguments_are_keyword_only(loader_class: LoaderClass) -> None:
    thirteen = (ROWS, 1, None, None, None, 0, None, False, False, 0, None, None, None)
    loader_class(*thirteen)
    with pytest.raises(TypeError, match="positional"):
        loader_class(*thirteen, 2)


def test_our_signature_begins_with_torchs(ours: LoaderClass) -> None:
    def shape(loader_class: LoaderClass) -> list[tuple[str, object, object]]:
        parameters = inspect.signature(loader_class.__init__).parameters.values()
        return [(each.name, each.kind, each.default) for each in parameters]

    theirs, mine = shape(LOADERS["torch"]), shape(ours)
    assert mine[: len(theirs)] == theirs
    # Ours may add options, by keyword only: what Lightning and ignite rebuild by name.
    assert all(kind is inspect.Parameter.KEYWORD_ONLY for _, kind, _ in mine[len(theirs) :])


# --- attributes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"]
)
def test_a_frozen_attribute_cannot_be_set(name: str, loader_class: LoaderClass) -> None:
    loader = loader_class(ROWS, batch_size=2)
    before = getattr(loader, name)
    words = f"{name} attribute should not be set after DataLoader is initialized"
    with pytest.raises(ValueError, match=words):
        setattr(loader, name, 1)
    assert getattr(loader, name) is before


def test_the_other_attributes_can_be_set(loader_class: LoaderClass) -> None:
    loader = loader_class(ROWS, batch_size=2)
    loader.collate_fn = as_list
    loader.worker_init_fn = print
    loader.num_workers = 1
    loader.prefetch_factor = 3
    loader.my_own = "kept"
    assert loader.my_own == "kept"
    assert list(loader_class(ROWS, batch_size=5, collate_fn=as_list))[1] == [5, 6, 7, 8, 9]


CONFIGURATIONS: list[dict[str, Any]] = [
    {},
    {"batch_size": 4, "drop_last": True},
    {"batch_size": None},
    {"shuffle": True, "generator": torch.Generator()},
    {"sampler": [3, 1]},
    {"batch_sampler": [[0, 1], [2]]},
    {"num_workers": 2},
    {"num_workers": 2, "prefetch_factor": 5, "persistent_workers": True, "in_order": False},
    {"num_workers": 1, "multiprocessing_context": "spawn", "timeout": 9},
    {"pin_memory": True, "pin_memory_device": "cuda", "collate_fn": as_list},
    {"num_workers": 1, "worker_init_fn": print},
]


OURS = {
    "sample_timeout",
    "on_error",
    "fault_log",
    "worker_memory",
    "randomness",
    "quarantine",
}  # beyond torch's, by keyword only


@pytest.mark.parametrize("value", ["auto", None, 1, 0.5, 3600])
def test_sample_timeout_takes_auto_none_and_seconds(value: Any, ours: LoaderClass) -> None:
    assert ours(ROWS, sample_timeout=value).sample_timeout == value


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("soon", TypeError),
        ([1], TypeError),
        (True, TypeError),
        (0, ValueError),
        (-1.0, ValueError),
        (float("nan"), ValueError),
        (float("inf"), ValueError),
    ],
)
def test_a_wrong_sample_timeout_is_named(
    value: Any, error: type[Exception], ours: LoaderClass
) -> None:
    with pytest.raises(error, match=re.escape(f"sample_timeout={value!r}")):
        ours(ROWS, sample_timeout=value)


def comparable(value: Any) -> object:
    """Give samplers by type and content, everything else as it is."""
    if not type(value).__module__.startswith("torch.utils.data"):
        return value
    return type(value), {name: comparable(part) for name, part in vars(value).items()}


@pytest.mark.parametrize("arguments", CONFIGURATIONS, ids=str)
@pytest.mark.parametrize("dataset", [ROWS, STREAM], ids=["map", "iterable"])
def test_public_attributes_are_torchs_by_name_and_value(
    arguments: dict[str, Any], dataset: Any, ours: LoaderClass
) -> None:
    if dataset is STREAM and {"shuffle", "sampler", "batch_sampler"} & set(arguments):
        pytest.skip("an iterable dataset takes no sampler")
    theirs = public(LOADERS["torch"](dataset, **arguments))
    mine = public(ours(dataset, **arguments))
    assert set(mine) == set(theirs) | OURS
    for name, value in theirs.items():
        assert type(mine[name]) is type(value), name
        assert comparable(mine[name]) == comparable(value), name


@pytest.mark.parametrize("arguments", CONFIGURATIONS, ids=str)
def test_the_private_names_that_trainers_read_exist(
    arguments: dict[str, Any], loader_class: LoaderClass
) -> None:
    loader = loader_class(ROWS, **arguments)
    theirs = LOADERS["torch"](ROWS, **arguments)
    assert loader._iterator is None
    assert loader._dataset_kind == theirs._dataset_kind
    assert loader._auto_collation == theirs._auto_collation
    index_sampler = loader.batch_sampler if loader._auto_collation else loader.sampler
    assert loader._index_sampler is index_sampler
    assert loader._IterableDataset_len_called is None
    assert loader._DataLoader__initialized is True
    assert callable(loader._get_iterator)
    assert callable(loader.check_worker_number_rationality)


def test_a_loader_that_was_used_has_no_more_public_attributes(loader_class: LoaderClass) -> None:
    loader = loader_class(ROWS, num_workers=1)
    before = set(public(loader))
    list(loader)
    assert set(public(loader)) == before


@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
def test_a_context_given_by_name_becomes_a_context(context: str, loader_class: LoaderClass) -> None:
    loader = loader_class(ROWS, num_workers=1, multiprocessing_context=context)
    assert loader.multiprocessing_context.get_start_method() == context
    assert "multiprocessing_context" not in public(loader)


@pytest.mark.parametrize("source", [multiprocessing, torch.multiprocessing], ids=["std", "torch"])
def test_a_context_given_as_object_is_kept_and_used(source: Any, loader_class: LoaderClass) -> None:
    context = source.get_context("fork")
    loader = loader_class(ROWS, num_workers=1, multiprocessing_context=context)
    assert loader.multiprocessing_context is context
    assert [batch.item() for batch in loader] == list(range(10))


def test_the_context_can_be_changed_and_is_checked_again(loader_class: LoaderClass) -> None:
    loader = loader_class(ROWS, num_workers=1)
    loader.multiprocessing_context = "fork"
    assert loader.multiprocessing_context.get_start_method() == "fork"
    with pytest.raises(ValueError, match="should specify a valid start method"):
        loader.multiprocessing_context = "spork"


def test_constructing_starts_no_process_and_no_thread(loader_class: LoaderClass) -> None:
    me = psutil.Process()
    children = {child.pid for child in me.children(recursive=True)}
    threads = set(threading.enumerate())
    system_threads = me.num_threads()
    loaders = [
        loader_class(ROWS, num_workers=2),
        loader_class(ROWS, num_workers=2, persistent_workers=True, pin_memory=True),
        loader_class(STREAM, num_workers=1, multiprocessing_context="spawn"),
    ]
    assert {child.pid for child in me.children(recursive=True)} <= children
    assert set(threading.enumerate()) == threads
    assert me.num_threads() <= system_threads
    assert len(loaders) == 3


def test_constructing_draws_no_random_number(loader_class: LoaderClass) -> None:
    before = torch.get_rng_state()
    loader_class(ROWS, shuffle=True, num_workers=2)
    assert torch.equal(torch.get_rng_state(), before)


def test_more_workers_than_cores_is_torchs_warning(loader_class: LoaderClass) -> None:
    with pytest.warns(UserWarning, match="This DataLoader will create 999 worker processes"):
        loader_class(ROWS, num_workers=999)


# --- length ------------------------------------------------------------------------------------


@dataclass
class Sized(IterableDataset):
    """An iterable dataset that claims a length, rightly or not."""

    claimed: int
    given: int

    def __len__(self) -> int:
        return self.claimed

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.given))


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"batch_size": 3},
        {"batch_size": 3, "drop_last": True},
        {"batch_size": None},
        {"batch_size": 30},
        {"batch_size": 30, "drop_last": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("dataset", [ROWS, Sized(10, 10)], ids=["map", "iterable"])
def test_length_is_torchs(
    arguments: dict[str, Any], dataset: Any, loader_class: LoaderClass
) -> None:
    loader = loader_class(dataset, **arguments)
    assert len(loader) == len(LOADERS["torch"](dataset, **arguments))
    assert len(loader) == len(list(loader))


def test_length_of_a_dataset_without_one_is_a_type_error(loader_class: LoaderClass) -> None:
    with pytest.raises(TypeError, match="has no len"):
        len(loader_class(STREAM))


def test_length_comes_from_the_sampler(loader_class: LoaderClass) -> None:
    assert len(loader_class(ROWS, sampler=[0, 1, 2], batch_size=2)) == 2
    assert len(loader_class(ROWS, batch_sampler=[[0], [1, 2]])) == 2
    assert len(iter(loader_class(ROWS, batch_size=4))) == 3


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("arguments", [{"batch_size": None}, {"batch_size": 1}], ids=str)
def test_more_samples_than_the_claimed_length_is_torchs_warning(
    workers: int, arguments: dict[str, Any], ours: LoaderClass
) -> None:
    def program(loader_class: LoaderClass) -> None:
        loader = loader_class(Sized(2, 3), num_workers=workers, **arguments)
        len(loader)
        list(loader)

    theirs = caught_warnings(lambda: program(LOADERS["torch"]))
    caught = caught_warnings(lambda: program(ours))
    mine = [(kind, text) for kind, text in caught if not text.startswith("antifreeze: ")]
    assert theirs
    assert [kind for kind, _ in mine] == [kind for kind, _ in theirs]
    # The words people search for, and the numbers; what we advise may differ.
    for known in (r".*? was reported to be \d+", r"but \d+ samples have been fetched"):
        assert [_part(known, text) for _, text in mine] == [
            _part(known, text) for _, text in theirs
        ]


def _part(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    assert found, text
    return found.group()


def test_no_warning_where_the_length_was_never_asked(loader_class: LoaderClass) -> None:
    assert caught_warnings(lambda: list(loader_class(Sized(2, 3)))) == []


def test_a_loader_of_a_subclass_is_named_by_the_line_that_makes_it() -> None:
    class Mine(DataLoader[int]):
        def __init__(self, *arguments: object, **options: object) -> None:
            super().__init__(*arguments, **options)

    line = sys._getframe().f_lineno + 1
    loader = Mine([1, 2])
    assert f"test_constructor.py:{line}" in repr(loader)
