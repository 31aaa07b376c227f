"""Slabs: made when needed, filled again, never under anybody's eyes; and what the shelf returns."""

from __future__ import annotations

import errno
import gc
import os
import resource
import threading
import weakref

import pytest
import torch

from antifreeze._core.events import LeasesReturned, ProgramForked
from antifreeze._linux.available_memory import Available, available, in_words
from antifreeze._transport import memory
from antifreeze._transport.mapped_slabs import MappedSlabs, Returns
from antifreeze._transport.memory import MemoryShort, reserve
from antifreeze._transport.packing import pack
from antifreeze._transport.worker_slabs import Arena, Slab, slab_size

KIB = 1024


def load(arena: Arena, batch: object, slot: int = 0, *, renewed: bool = False) -> Slab:
    """Pack one batch into a slot's slab and let it go, as a worker does."""
    arena.begin(slot, renewed)
    held = [batch]
    del batch
    packed = pack(held.pop(), arena)
    slab = arena.seal(packed.slab_bytes)
    assert slab is not None
    return slab


def collated(arena: Arena, value: int, size: int = 64 * KIB) -> torch.Tensor:
    arena.open()
    room = arena.take((size,), torch.uint8, size)
    assert room is not None
    return room.fill_(value)


def test_a_slot_keeps_its_slab_from_batch_to_batch() -> None:
    arena = Arena()
    first = load(arena, torch.zeros(100_000))
    assert load(arena, torch.ones(100_000)) is first
    assert load(arena, torch.ones(90_000)) is first
    assert load(arena, torch.ones(100_000), slot=1) is not first
    assert len(arena) == 2


def test_what_is_collated_into_the_slab_is_not_copied() -> None:
    arena = Arena()
    arena.begin(0, renewed=False)
    batch = collated(arena, 7)
    packed = pack(batch, arena)
    assert packed.offsets == [0]
    assert packed.slab_bytes == 64 * KIB
    del batch
    slab = arena.seal(packed.slab_bytes)
    assert slab is not None and set(slab.memory.view[: 64 * KIB]) == {7}


def test_a_batch_that_needs_more_moves_to_a_larger_slab_whole() -> None:
    arena = Arena()
    arena.begin(0, renewed=False)
    batch = [collated(arena, 7), torch.full((200 * KIB,), 9, dtype=torch.uint8)]
    packed = pack(batch, arena)
    batch.clear()
    slab = arena.seal(packed.slab_bytes)
    assert slab is not None
    assert set(slab.memory.view[: 64 * KIB]) == {7}
    assert set(slab.memory.view[64 * KIB : 264 * KIB]) == {9}
    assert len(arena) == 1


def test_what_a_collate_function_keeps_is_never_filled_again() -> None:
    arena = Arena()
    arena.begin(0, renewed=False)
    kept = collated(arena, 7)
    packed = pack(kept, arena)
    given = arena.seal(packed.slab_bytes)
    assert given is not None
    given.memory.view[: 64 * KIB] = bytes(64 * KIB)  # the loop writes to its batch
    assert set(kept.tolist()) == {7}
    arena.begin(0, renewed=False)
    other = collated(arena, 9)
    assert set(kept.tolist()) == {7} and set(other.tolist()) == {9}


def test_who_collates_on_their_own_gets_no_room_in_the_slab() -> None:
    arena = Arena()
    assert arena.take((64 * KIB,), torch.uint8, 64 * KIB) is None
    arena.begin(0, renewed=False)
    assert arena.take((64 * KIB,), torch.uint8, 64 * KIB) is None  # in a dataset
    arena.open()
    got: list[object] = []
    thread = threading.Thread(
        target=lambda: got.append(arena.take((64 * KIB,), torch.uint8, 64 * KIB))
    )
    thread.start()
    thread.join(10)
    assert got == [None]  # in a thread of one
    assert arena.take((64 * KIB,), torch.uint8, 64 * KIB) is not None
    arena.abort()
    assert arena.take((64 * KIB,), torch.uint8, 64 * KIB) is None


def test_a_renewed_slot_takes_new_memory() -> None:
    arena = Arena()
    first = load(arena, torch.zeros(100_000))
    assert load(arena, torch.zeros(100_000), renewed=True) is not first


def test_one_huge_batch_does_not_keep_its_memory_for_ever() -> None:
    arena = Arena()
    load(arena, torch.zeros(4_000_000))
    huge = arena.size
    for _ in range(200):
        load(arena, torch.zeros(10_000))
    assert arena.size < huge / 8


def test_batches_of_changing_size_share_few_slab_sizes() -> None:
    sizes = {slab_size(needed) for needed in range(100_000, 200_000, 777)}
    assert len(sizes) <= 9
    assert all(
        needed <= slab_size(needed) <= needed * 9 / 8 + 4096 for needed in range(1, 10**6, 997)
    )


def test_memory_is_reserved_before_it_is_written_and_cannot_shrink() -> None:
    descriptor = reserve(1 << 20)
    try:
        assert os.fstat(descriptor).st_blocks * 512 >= 1 << 20
        with pytest.raises(PermissionError):
            os.ftruncate(descriptor, 4096)
    finally:
        os.close(descriptor)


def test_memory_that_is_not_there_is_an_error_with_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda: Available(5000, "free here"))
    with pytest.raises(MemoryShort) as caught:
        reserve(8192)
    assert (caught.value.needed, caught.value.left.bytes) == (8192, 5000)


def test_what_the_kernel_refuses_is_an_error_with_figures_and_leaves_nothing_open() -> None:
    before = len(os.listdir("/proc/self/fd"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    try:
        assert available().bytes <= 1 << 16
        with pytest.raises(MemoryShort):
            reserve(1 << 20)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert len(os.listdir("/proc/self/fd")) == before


def test_sizes_in_words() -> None:
    assert [in_words(n) for n in (0, 812, 41_943_040, 3e12)] == [
        "0 B",
        "812 B",
        "41.9 MB",
        "3000.0 GB",
    ]


# ---- the main process's side ----------------------------------------------------------------


def shelf_with_slab(returns: Returns) -> MappedSlabs:
    slab = load(Arena(), torch.zeros(100_000))
    shelf = MappedSlabs(3, 2, returns)
    shelf.put(0, slab.take_descriptor(), slab.memory.size)
    return shelf


RETURNED = LeasesReturned(((3, 2, 0, 5),))


def test_a_slab_is_returned_when_the_last_look_at_it_ends() -> None:
    returns = Returns()
    shelf = shelf_with_slab(returns)
    tensor = torch.frombuffer(shelf.view(0, 5).keep(), dtype=torch.float32, count=100)
    row = tensor[:10].numpy()[2:]
    del tensor
    gc.collect()
    assert list(returns.collect()) == []
    del row
    assert list(returns.collect()) == [RETURNED]
    assert list(returns.collect()) == []


def test_a_return_may_come_from_any_thread_and_from_the_garbage_collector() -> None:
    returns = Returns()
    shelf = shelf_with_slab(returns)

    def look_and_forget() -> None:
        cycle: list[object] = [shelf.view(0, 5).keep()]
        cycle.append(cycle)

    gc.disable()
    try:
        thread = threading.Thread(target=look_and_forget)
        thread.start()
        thread.join(10)
        assert list(returns.collect()) == []
        gc.collect()
        assert list(returns.collect()) == [RETURNED]
    finally:
        gc.enable()


def test_a_fork_is_told_before_what_is_returned_after_it() -> None:
    returns = Returns()
    shelf = shelf_with_slab(returns)
    anchor = shelf.view(0, 5).keep()
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    del anchor
    assert list(returns.collect()) == [ProgramForked(), ProgramForked(), RETURNED]


def test_a_slab_that_got_lost_is_known_and_its_lease_comes_back() -> None:
    returns = Returns()
    shelf = MappedSlabs(3, 2, returns)
    assert not shelf.lacking
    shelf.put(0, None, 100_000)
    assert shelf.lacking == {0}
    with pytest.raises(OSError, match="could not be received"):
        shelf.view(0, 5).keep()
    assert list(returns.collect()) == [RETURNED]


def test_a_batch_is_let_go_of_as_soon_as_it_is_packed() -> None:
    arena = Arena()
    arena.begin(0, renewed=False)
    batch = {"x": [collated(arena, 7)], "y": torch.zeros(50_000)}
    gone = weakref.ref(batch["y"])
    gc.disable()
    try:
        packed = pack(batch, arena)
        del batch
        assert gone() is None
        first = arena.seal(packed.slab_bytes)
        assert load(arena, {"x": torch.zeros(60_000)}) is first
    finally:
        gc.enable()


def test_memory_that_was_refused_is_not_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda: Available(1 << 20, "free here"))
    arena = Arena()
    arena.begin(0, renewed=False)
    with pytest.raises(MemoryShort):
        pack(torch.zeros(1 << 20), arena)
    arena.abort()
    load(arena, torch.zeros(10_000))


def test_a_mapping_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise RuntimeError("unable to mmap 8 bytes: Cannot allocate memory (12)")

    slab = load(Arena(), torch.zeros(100_000))
    monkeypatch.setattr(torch.UntypedStorage, "from_file", refuse)
    shelf = MappedSlabs(3, 2, Returns())
    shelf.put(0, slab.take_descriptor(), slab.memory.size)
    assert shelf.lacking == {0}
    with pytest.raises(OSError, match="Cannot allocate memory") as caught:
        shelf.view(0, 5).keep()
    assert caught.value.errno == errno.ENOMEM
    arena = Arena()
    arena.begin(0, renewed=False)
    with pytest.raises(MemoryShort):
        pack(torch.zeros(100_000), arena)


def test_a_shelf_that_is_cleared_keeps_what_a_batch_lies_in() -> None:
    returns = Returns()
    shelf = shelf_with_slab(returns)
    tensor = torch.frombuffer(shelf.view(0, 5).keep(), dtype=torch.float32, count=100)
    shelf.clear()
    assert tensor.sum() == 0
    del tensor
    assert list(returns.collect()) == [RETURNED]
