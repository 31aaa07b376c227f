"""Things that look at the same memory: what is written through one is seen through the others."""

from __future__ import annotations

import array
import ctypes
import types
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from antifreeze import DataLoader

from .clean import Asked, another_thread, ask
from .programs import finish, program


class Special(np.ndarray):
    """A subclass, as libraries have."""


def pair_of(kind: str) -> tuple[Any, Any]:
    """Return an owner of memory, and something else that looks at it."""
    match kind.partition(" and ")[::2]:
        case "bytearray", other:
            owner: Any = bytearray(4)
        case "python array", other:
            owner = array.array("B", bytes(4))
        case "ctypes", other:
            owner = (ctypes.c_ubyte * 4)()
        case _, other:
            owner = np.zeros(4, np.uint8)
    match other:
        case "tensor":
            return owner, torch.frombuffer(owner, dtype=torch.uint8)
        case "memoryview":
            return owner, memoryview(owner)
        case "part":
            return owner, torch.from_numpy(owner[:3])
        case "array of a tensor":
            tensor = torch.zeros(4, dtype=torch.uint8)
            return tensor, tensor.numpy()[:]
    return owner, np.frombuffer(owner, np.uint8)[:3]


PAIRS = [
    "bytearray and array",
    "bytearray and tensor",
    "bytearray and memoryview",
    "python array and array",
    "python array and tensor",
    "ctypes and array",
    "array and tensor",
    "array and part",
    "array and array of a tensor",
]


@pytest.mark.parametrize("context", [None, "spawn"])
def test_memory_with_two_owners_to_see_is_one_piece_in_either_order(context: str | None) -> None:
    pairs = [pair_of(kind) for kind in PAIRS]
    pairs += [pair_of(kind)[::-1] for kind in PAIRS]

    def question(there: Any) -> list[tuple[str, list[int]]]:
        told = []
        for first, second in there:
            first[0], second[1] = 7, 8
            told.append((type(second).__name__, [int(first[1]), int(second[0])]))
        return told

    expected = [(type(second).__name__, [8, 7]) for _, second in pairs]
    if context is None:
        assert ask(pairs, question) == expected
    else:
        asked: Any = Asked(pairs, question)
        loader: Any = DataLoader(
            asked, None, num_workers=1, multiprocessing_context=context, collate_fn=list
        )
        assert next(iter(loader)) == expected


def test_views_of_other_kinds_of_arrays_stay_views() -> None:
    table = np.zeros(3, [("x", "u1"), ("y", "f8")])
    objects = np.array([[0], [1, 1], [2, 2, 2]], object)
    data = np.arange(3)
    masked = np.ma.masked_array(data, [False, True, False], hard_mask=True, fill_value=9)
    records = table.view(np.recarray)
    things = [table, records, records.x, objects, objects[::-1], masked, masked.data, data]

    def question(there: Any) -> list[Any]:
        table, records, column, objects, reverse, masked, inner, data = there
        table["x"][0], objects[0], data[0] = 5, "new", 6
        return [
            (type(records).__name__, int(records.x[0]), int(column[0])),
            (reverse[2], reverse[0] is objects[2]),
            (int(masked[0]), int(inner[0]), masked.tolist(), masked.hardmask, masked.fill_value),
        ]

    told = ask(things, question)
    assert told == [("recarray", 5, 5), ("new", True), (6, 6, [6, None, 2], True, 9)]


def test_an_array_of_a_subclass_that_shares_its_memory_forces_a_fork(
    caplog: pytest.LogCaptureFixture,
) -> None:
    whole = np.zeros((2, 2))
    things = [whole, whole.view(Special)]

    def question(there: Any) -> float:
        there[0][0, 0] = 3
        return float(there[1][0, 0])

    with another_thread():
        loader: Any = DataLoader(
            Asked(things, question), None, num_workers=1, collate_fn=lambda row: row
        )
        assert list(loader) == [3, 3]
    assert "a Special in memory that an array in the dataset shares" in caplog.text


def test_tensors_over_parts_of_one_array_force_a_fork(caplog: pytest.LogCaptureFixture) -> None:
    table = np.arange(6.0).reshape(2, 3)
    columns = [torch.from_numpy(table[:, 0]), torch.from_numpy(table[:, 1])]
    with another_thread():
        loader: Any = DataLoader(
            Asked(columns, lambda there: [each.tolist() for each in there]), None, num_workers=1
        )
        assert list(loader) == [[[0, 3], [1, 4]]] * 2
    assert "a tensor in memory that a tensor in the dataset shares" in caplog.text


def test_a_field_beside_references_arrives_alone() -> None:
    table = np.array([("a", 1), ("b", 2)], [("name", object), ("number", "i4")])
    assert ask(table["number"], lambda there: there.tolist()) == [1, 2]


def test_views_of_dicts_follow_the_dict() -> None:
    plain: dict[str, int] = {"a": 1}
    ordered = OrderedDict(a=1)
    things = [plain, types.MappingProxyType(plain), plain.keys(), plain.values(), plain.items()]
    things += [ordered, ordered.keys(), ordered.items()]

    def question(there: Any) -> list[Any]:
        there[0]["b"] = there[5]["b"] = 2
        shown = [dict(there[1]), *(list(each) for each in (*there[2:5], *there[6:]))]
        return [shown, [type(each).__name__ for each in there]]

    both, items = ["a", "b"], [("a", 1), ("b", 2)]
    shown, kinds = ask(things, question)
    assert shown == [dict(items), both, [1, 2], items, both, items]
    assert kinds == [type(each).__name__ for each in things]


def test_memoryviews_keep_their_form_and_their_place() -> None:
    owner = bytearray(range(24))
    whole = memoryview(owner)
    views = [whole[8:], whole[8:].cast("H"), whole[:4].toreadonly(), whole.cast("B", (4, 6))]

    def look(view: memoryview) -> Any:
        return view.tolist(), view.format, view.readonly, view.shape

    answer = ask([owner, *views], lambda there: [look(each) for each in there[1:]])
    assert answer == [look(each) for each in views]


QUIET = """
    import warnings

    class Holds(Numbers):
        def __init__(self):
            super().__init__(2)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.quantized = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)
                self.sparse = torch.eye(2).to_sparse_csr()

        def __getitem__(self, index):
            return self.sparse.to_dense().sum() + self.quantized.dequantize().sum()

    loader = DataLoader(Holds(), None, num_workers=1, multiprocessing_context="spawn")
    say(*[round(float(each)) for each in loader], len(warnings.filters) > 0)
"""


def test_quantized_and_sparse_tensors_arrive_without_a_warning(tmp_path: Path) -> None:
    with program(tmp_path, QUIET) as process:
        assert finish(process) == (0, "4 4 True\n", "")
