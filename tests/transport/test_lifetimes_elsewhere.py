"""Batches in other processes: forked children, queues, other loaders."""

import copy
import gc
import pickle
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import pytest
import torch
import torch.multiprocessing

from antifreeze import DataLoader

from ..patience import PATIENCE_S
from ..rogues.programs import finish, program
from .lifetimes import HELD, SIDE, batch_of, held_while_recycling, same

FORKING = f"""
    import gc, multiprocessing, warnings
    # From Python 3.12 on, whoever forks beside threads is warned; here there are those of a loader.
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
    torch.set_num_threads(1)    # a child of a process that used OpenMP's threads waits for them
    N = {4 * SIDE * SIDE // 4}
    RAMP = torch.arange(N, dtype=torch.int32)

    def batch_of(number):
        return RAMP + 1_000_000 * number

    class Batches:
        def __init__(self, length=120):
            self.length = length
        def __len__(self):
            return self.length
        def __getitem__(self, number):
            return batch_of(number)

    def loader_of(length=120, **more):
        return DataLoader(Batches(length), batch_size=None, num_workers=2, **more)

    def right(number, values):
        return bool((torch.as_tensor(values) == batch_of(number)).all())

    def recycle(iterator, numbers):
        for number in numbers:
            assert right(number, next(iterator)), number
        gc.collect()

    def wait_for(pipe):
        assert os.read(pipe, 1) == b"."
"""


@pytest.mark.parametrize("held", ["batch", "memoryview(batch.numpy()[7:])"])
def test_a_forked_child_reads_what_its_parent_dropped(held: str, tmp_path: Any) -> None:
    code = f"""
    {FORKING.strip()}
    iterator = iter(loader_of())
    recycle(iterator, range(10))
    batch = next(iterator)
    holder = {held}
    del batch
    go, tell = os.pipe()
    child = os.fork()
    if child == 0:
        wait_for(go)
        wanted = batch_of(10)[-len(holder):]
        os._exit(0 if (torch.as_tensor(holder) == wanted).all() else 1)
    del holder
    gc.collect()
    recycle(iterator, range(11, 120))
    os.write(tell, b".")
    say(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    with program(tmp_path, code) as process:
        assert finish(process) == (0, "0\n", "")


def test_children_forked_at_many_moments_each_read_their_own_batch(tmp_path: Any) -> None:
    code = f"""
    {FORKING.strip()}
    go, tell = os.pipe()
    children = []
    for number, batch in enumerate(loader_of(200)):
        if number % 25 == 3:
            child = os.fork()
            if child == 0:
                wait_for(go)
                os._exit(0 if right(number, batch) else 1)
            children.append(child)
        assert right(number, batch), number
    del batch
    gc.collect()
    for number, batch in enumerate(loader_of(50)):
        assert right(number, batch), number
    os.write(tell, b"." * len(children))
    say(*[os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])
    """
    with program(tmp_path, code) as process:
        assert finish(process) == (0, " ".join(["0"] * 8) + "\n", "")


def test_a_multiprocessing_child_reads_the_batch_it_was_given(tmp_path: Any) -> None:
    code = f"""
    {FORKING.strip()}
    def check(number, batch, go):
        wait_for(go)
        sys.exit(0 if right(number, batch) else 1)
    iterator = iter(loader_of())
    recycle(iterator, range(10))
    go, tell = os.pipe()
    child = multiprocessing.get_context("fork").Process(target=check, args=(10, next(iterator), go))
    child.start()
    assert not hasattr(child, "_args")      # start() has dropped the batch
    gc.collect()
    recycle(iterator, range(11, 120))
    os.write(tell, b".")
    child.join()
    say(child.exitcode)
    """
    with program(tmp_path, code) as process:
        assert finish(process) == (0, "0\n", "")


def test_a_child_that_drops_a_batch_takes_nothing_from_its_parent(tmp_path: Any) -> None:
    code = f"""
    {FORKING.strip()}
    iterator = iter(loader_of())
    recycle(iterator, range(10))
    kept = [next(iterator) for _ in range(3)]
    child = os.fork()
    if child == 0:
        kept.clear()
        gc.collect()
        sys.exit(0)     # and runs whatever runs at exit
    assert os.waitpid(child, 0)[1] == 0
    recycle(iterator, range(13, 120))
    say(*[right(10 + place, batch) for place, batch in enumerate(kept)])
    """
    with program(tmp_path, code) as process:
        assert finish(process) == (0, "True True True\n", "")


def test_a_child_with_a_loader_of_its_own_leaves_its_parents_batches_alone(tmp_path: Any) -> None:
    code = f"""
    {FORKING.strip()}
    iterator = iter(loader_of())
    recycle(iterator, range(10))
    kept = [next(iterator) for _ in range(3)]
    child = os.fork()
    if child == 0:
        for number, batch in enumerate(loader_of(60)):
            assert right(number, batch), number
        fine = all(right(10 + place, batch) for place, batch in enumerate(kept))
        kept.clear()
        for number, batch in enumerate(loader_of(60)):
            assert right(number, batch), number
        sys.exit(0 if fine else 1)
    recycle(iterator, range(13, 120))
    say(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    say(*[right(10 + place, batch) for place, batch in enumerate(kept)])
    """
    with program(tmp_path, code) as process:
        assert finish(process) == (0, "0\nTrue True True\n", "")


@pytest.mark.parametrize("replaced", [False, True], ids=["kept", "replaced in the main process"])
def test_a_delivered_batch_can_be_the_dataset_of_another_loader(
    replaced: bool, tmp_path: Any
) -> None:
    code = f"""
    {FORKING.strip()}
    class Rows:
        def __init__(self, batch):
            self.batch = batch
        def __len__(self):
            return 50
        def __getitem__(self, index):
            return self.batch + 1       # other values than the batch's own
    iterator = iter(loader_of())
    recycle(iterator, range(10))
    rows = Rows(next(iterator))
    second = iter(DataLoader(rows, batch_size=None, num_workers=2))
    assert right(10, next(second) - 1)
    if {replaced}:
        rows.batch = None       # the workers have theirs, as they have in torch's loader
        gc.collect()
    recycle(iterator, range(11, 60))
    for number, batch in enumerate(second, start=60):
        assert right(10, batch - 1), number
        recycle(iterator, [number])
    say("right")
    """
    with program(tmp_path, code) as process:
        assert finish(process) == (0, "right\n", "")


def _check_what_comes(inbox: Any, go: Any, numbers: tuple[int, ...], verdict: Any) -> None:
    batches = [inbox.get(timeout=PATIENCE_S) for _ in numbers]
    arrived = [same(t, batch_of(n)) for t, n in zip(batches, numbers, strict=True)]
    assert go.wait(PATIENCE_S)
    later = [same(t, batch_of(n)) for t, n in zip(batches, numbers, strict=True)]
    verdict.send((arrived, later))


def test_a_batch_sent_on_through_a_queue_arrives_and_stays() -> None:
    context = torch.multiprocessing.get_context("fork")
    inbox, go = context.Queue(), context.Event()
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_check_what_comes, args=(inbox, go, HELD, sending))
    process.start()
    held_while_recycling("tensor", inbox.put)
    go.set()
    assert receiving.poll(PATIENCE_S)
    assert receiving.recv() == ([True] * len(HELD), [True] * len(HELD))
    process.join(PATIENCE_S)
    assert process.exitcode == 0
    inbox.close()
    inbox.join_thread()


def test_what_numpy_sees_stays_right_while_the_tensor_is_sent_on() -> None:
    # Sharing moves a tensor's memory; numpy and views look at where it was.
    def hold(batch: torch.Tensor) -> tuple[np.ndarray[Any, Any], memoryview]:
        array = batch.numpy()
        view = memoryview(array)[3:]
        del batch
        gc.collect()
        return array, view

    for number, (array, view) in held_while_recycling("tensor", hold):
        assert np.array_equal(array, batch_of(number).numpy())
        assert np.array_equal(np.asarray(view), batch_of(number).numpy()[3:])


def test_a_batch_made_shareable_keeps_its_values() -> None:
    for number, batch in held_while_recycling("tensor", lambda batch: batch.share_memory_()):
        assert torch.equal(batch, batch_of(number))


VIEWS: dict[str, Callable[[torch.Tensor], Any]] = {
    "numpy": lambda t: t.numpy(),
    "numpy of a slice": lambda t: t[1:].numpy(),
    "a memoryview": lambda t: memoryview(t.numpy()).cast("B"),
    "DLPack": lambda t: np.from_dlpack(t),
    "a DLPack capsule": lambda t: torch.utils.dlpack.to_dlpack(t),
    "numpy and back": lambda t: torch.from_numpy(t.numpy()[1:]),
}
SHARING = ("share_memory_", "storage", "a slice", "queue", "pickled")


def _share(batch: torch.Tensor, way: str) -> None:
    """Have torch move a tensor to shared memory, in one of the ways there are."""
    match way:
        case "share_memory_":
            batch.share_memory_()
        case "storage":
            batch.untyped_storage().share_memory_()
        case "a slice":
            batch[2:].share_memory_()
        case "queue":
            queue = torch.multiprocessing.get_context("fork").Queue()
            queue.put(batch)
            queue.get(timeout=PATIENCE_S)
            queue.close()
            queue.join_thread()
        case "pickled":
            ForkingPickler.dumps(batch)
        case _:
            raise AssertionError(way)


def _read(held: Any) -> np.ndarray[Any, Any]:
    if type(held).__name__ == "PyCapsule":
        held = torch.utils.dlpack.from_dlpack(held)
    return np.asarray(held)


class Numbered:
    """Samples of a size, each all of one number."""

    def __init__(self, numbers: int) -> None:
        self.numbers = numbers

    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((self.numbers,), index, dtype=torch.int32)


@pytest.mark.parametrize("numbers", [16, 65_536], ids=["in the message", "in a slab"])
@pytest.mark.parametrize("way", SHARING)
def test_views_made_before_a_batch_was_shared_keep_their_values(way: str, numbers: int) -> None:
    # They look at where the batch was; and nobody else may use that place, nor unmap it.
    kept: list[tuple[int, str, Any]] = []
    batches = DataLoader(Numbered(numbers), batch_size=None, num_workers=2)
    for number, batch in enumerate(batches):
        if number < 2 * len(VIEWS):
            name = [*VIEWS][number % len(VIEWS)]
            kept.append((number, name, VIEWS[name](batch)))
            _share(batch, way)
            assert batch.is_shared()
            assert batch.eq(number).all()
    gc.collect()
    bytes(numbers * 4 * 20)  # memory that was given back is used again
    for number, name, view in kept:
        seen = _read(view)
        seen = seen.view(np.int32) if seen.dtype == np.uint8 else seen
        assert (seen == number).all(), (number, name)


def test_a_slab_comes_back_when_the_last_view_of_a_shared_batch_is_gone() -> None:
    iterator = iter(DataLoader(Numbered(65_536), batch_size=None, num_workers=1))
    addresses = set()
    for number, batch in enumerate(iterator):
        addresses.add(batch.data_ptr())
        array = batch.numpy()
        batch.share_memory_()
        assert (array == number).all()
    assert len(addresses) < 30  # of 60: slabs are used again


def test_a_batch_that_travels_or_is_copied_leaves_our_mark_behind() -> None:
    for batch in DataLoader(Numbered(65_536), batch_size=20, num_workers=1):
        for other in (copy.deepcopy(batch), pickle.loads(pickle.dumps(batch)), batch.clone()):
            assert "_antifreeze_memory" not in vars(other.untyped_storage())
