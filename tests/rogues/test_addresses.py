"""Numbers that are addresses in the program are not carried to a process where they are none; all
other numbers are."""

from __future__ import annotations

import ctypes
import logging
import mmap
import os
import pickle
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from antifreeze import DataLoader
from antifreeze._processes.replication import module_state
from antifreeze._processes.replication.pointer_values import (
    LEFT_OUT,
    LOWEST_ADDRESS,
    with_addresses,
)

TEXT = ctypes.create_string_buffer(100)
# Where the CUDA driver reserves memory; and what programs set.
RESERVED, RESERVED_BYTES = 0x2_0000_0000, 0x1_0020_0000
PIXELS = 10_000_000_000
MAP_FIXED_NOREPLACE, MAP_NORESERVE = 0x100000, 0x4000


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    made = ModuleType("library_of_this_test")
    made.__file__ = ctypes.__file__  # as one that is installed
    monkeypatch.setitem(sys.modules, made.__name__, made)
    module_state._log_left_out.cache_clear()
    return made


def carried(library: ModuleType) -> dict[str, Any]:
    """Return what would be sent of a library, as it is there."""
    return pickle.loads(pickle.dumps(module_state.collect({}).get(library.__name__, {})))


@pytest.fixture
def libc() -> Any:
    found = ctypes.CDLL(None, use_errno=True)
    found.mmap.restype = ctypes.c_void_p
    found.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    found.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return found


def mapped(libc: Any, address: int, size: int, rights: int) -> int:
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
    place: int | None = libc.mmap(address, size, rights, flags | MAP_FIXED_NOREPLACE, -1, 0)
    if place != address:
        if place is not None and place != 2**64 - 1:
            libc.munmap(place, size)
        pytest.skip(f"nothing can be mapped at {address:#x}: {os.strerror(ctypes.get_errno())}")
    return place


@pytest.fixture
def reserved(libc: Any) -> Iterator[None]:
    """Reserve what the CUDA driver does."""
    place = mapped(libc, RESERVED, RESERVED_BYTES, 0)
    yield
    libc.munmap(place, RESERVED_BYTES)


@pytest.mark.parametrize(
    "held",
    [
        ctypes.addressof(TEXT),
        {ctypes.addressof(TEXT)},
        ("words", [ctypes.addressof(TEXT)]),
        {"a": {"function": ctypes.addressof(TEXT)}},
    ],
)
def test_an_address_is_not_carried_and_another_number_is(held: Any, library: ModuleType) -> None:
    vars(library).update(kept=held, mask=2**64 - 1, count=2**33, name="words")
    sent = carried(library)
    assert str(ctypes.addressof(TEXT)) not in repr(sent)
    sent.pop("kept", None)
    assert sent == {"mask": 2**64 - 1, "count": 2**33, "name": "words"}


@pytest.mark.usefixtures("reserved")
@pytest.mark.parametrize("held", [PIXELS, [PIXELS, 1], {"limit": PIXELS}, RESERVED])
def test_a_number_in_memory_that_a_driver_reserves_is_carried(
    held: Any, library: ModuleType
) -> None:
    library.limit = held
    assert carried(library) == {"limit": held}


def test_a_number_in_memory_at_a_fixed_place_is_carried(libc: Any, library: ModuleType) -> None:
    """As that of Java in this process: it can be read, and no library keeps its addresses."""
    place = mapped(libc, RESERVED, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE)
    try:
        library.limit = RESERVED + 8
        assert carried(library) == {"limit": RESERVED + 8}
    finally:
        libc.munmap(place, mmap.PAGESIZE)


def test_a_number_in_memory_that_cannot_be_read_is_carried(libc: Any, library: ModuleType) -> None:
    place = mapped(libc, 4 * LOWEST_ADDRESS, mmap.PAGESIZE, 0)
    try:
        library.limit = place + 8
        assert carried(library) == {"limit": place + 8}
    finally:
        libc.munmap(place, mmap.PAGESIZE)


def test_what_is_left_out_is_logged_once(
    library: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    library.functions = {"sin": ctypes.addressof(TEXT)}
    with caplog.at_level(logging.DEBUG, "antifreeze"):
        carried(library)
        carried(library)
    said = [each for each in caplog.messages if library.__name__ in each]
    assert len(said) == 1 and "library_of_this_test.functions is an address" in said[0]


# Of another process.
THERE = 0x7F00_0000_1000


@pytest.mark.parametrize(
    ("held", "there", "expected"),
    [
        # What the program has set beside an address arrives, and addresses are those of there.
        ({"on": True, "f": ...}, {"on": False, "f": THERE}, {"on": True, "f": THERE}),
        ({"on": True, "f": ...}, {"on": False}, {"on": True}),
        ({"on": 2, "f": {"g": ...}}, {"on": 1, "f": {"g": THERE}}, {"on": 2, "f": {"g": THERE}}),
        ({...: "a name", "on": True}, {THERE: "another", "on": False}, {"on": True}),
        ([("f", ...), ("g", 1)], [("f", THERE), ("g", 0)], [("f", THERE), ("g", 1)]),
        # Nobody knows which they are.
        ([..., 1], [THERE], ...),
        ({..., 1}, {THERE}, ...),
        ({"f": ...}, None, ...),
        # There are none.
        ({"on": True}, None, {"on": True}),
        (7, None, 7),
    ],
)
def test_addresses_are_those_of_the_process_that_gets_the_rest(
    held: Any, there: Any, expected: Any
) -> None:
    assert with_addresses(held, there) == expected


def test_a_dict_with_an_address_takes_what_the_program_has_set_beside_it(
    library: ModuleType,
) -> None:
    library.settings = {"on": True, "function": ctypes.addressof(TEXT)}
    library.handle = ctypes.addressof(TEXT)
    sent = carried(library)
    assert sent == {"settings": {"on": True, "function": LEFT_OUT}}
    library.settings = settings = {"on": False, "function": THERE}
    library.handle = THERE
    module_state._set(sent, library)
    assert library.settings is settings == {"on": True, "function": THERE}
    assert library.handle == THERE


def test_a_library_that_holds_addresses_need_not_be_sent_where_it_is_the_same(
    library: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    library.settings = {"on": True, "function": ctypes.addressof(TEXT)}
    known = module_state.digests()
    assert library.__name__ not in module_state.collect(known)
    monkeypatch.setitem(library.settings, "on", False)
    assert library.__name__ in module_state.collect(known)


class Limits:
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        from PIL import Image

        return Image.MAX_IMAGE_PIXELS or 0


@pytest.mark.usefixtures("reserved")
def test_a_limit_of_pillow_holds_in_workers_of_a_clean_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from PIL import Image

    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", PIXELS)
    dataset: Any = Limits()
    loader: DataLoader[Any] = DataLoader(
        dataset, 2, num_workers=1, multiprocessing_context="forkserver"
    )
    assert [batch.tolist() for batch in loader] == [[PIXELS] * 2] * 2
