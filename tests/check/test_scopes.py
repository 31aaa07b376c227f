"""Which scope a name is of: `global`, `nonlocal`, type parameters."""

from __future__ import annotations

import sys
from textwrap import dedent

import pytest

from antifreeze.doctor.check.checker import check_text

START = "from torch.utils.data import Dataset\n"


def undefined(text: str) -> list[str]:
    result = check_text(START + dedent(text))
    assert not result.failures
    return [each.words for each in result.found if each.code in ("AF705", "AF001")]


def test_global_binds_in_the_module_however_deep_it_is_said() -> None:
    assert not undefined(
        """
        class D(Dataset):
            def __init__(self, p):
                global INDEX
                INDEX = list(range(10))
                def deeper():
                    global DEEP
                    DEEP = 1
                deeper()
            def __len__(self):
                return 10
            def __getitem__(self, i):
                return INDEX[i] + DEEP
        """
    )


def test_a_global_name_is_not_that_of_a_function_around() -> None:
    (words,) = undefined(
        """
        def make():
            LOCAL = 1
            class D(Dataset):
                def __len__(self):
                    return 10
                def __getitem__(self, i):
                    global LOCAL
                    return LOCAL
            return D()
        """
    )
    assert "LOCAL" in words


def test_nonlocal_binds_in_the_function_that_has_the_name() -> None:
    assert not undefined(
        """
        def make():
            count = 0
            def middle():
                class D(Dataset):
                    def __len__(self):
                        return 10
                    def __getitem__(self, i):
                        nonlocal count
                        count += 1
                        return count
                return D()
            return middle(), count
        """
    )


@pytest.mark.skipif(sys.version_info < (3, 12), reason="type parameters came with Python 3.12")
def test_type_parameters_are_seen_in_bases_annotations_and_bodies() -> None:
    assert not undefined(
        """
        from collections.abc import Callable
        type Pair[A] = tuple[A, A]
        type Number = int | float
        class D[T: Number, *Ts, **P](Dataset[T]):
            Key = int
            held: T
            def __init__(self, f: Callable[P, T], *rest: *Ts) -> None:
                self.f = f
            def __len__(self) -> int:
                return 3
            def __getitem__[U](self, i: Key, x: U | None = None) -> Pair[T] | U:
                y: U | T = self.f(i)
                def inner[V](z: V) -> V | T:
                    return z
                return inner(y)
            async def later[U: T](self, x: U) -> U:
                return x
        """
    )


@pytest.mark.skipif(sys.version_info < (3, 12), reason="type parameters came with Python 3.12")
def test_type_parameters_end_with_what_has_them() -> None:
    (words,) = undefined(
        """
        def first[U](x: U) -> U:
            return x
        class D[T](Dataset[T]):
            def __len__(self):
                return 3
            def __getitem__(self, i):
                return U
        """
    )
    assert "`U`" in words
