"""Whatever still looks at a batch keeps its memory from being used again.

Each test takes something from a batch, drops the batch, lets a hundred more of the same size
through the same loader, and looks again. Batches say in every value which one they are.
"""

from __future__ import annotations

import copy
import gc
import io
import os
import pickle
import queue
import random
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.multiprocessing
from torch.utils.data import default_collate

from antifreeze import DataLoader

from ..rogues.programs import finish, program

SIDE = 256  # a batch is SIDE x SIDE numbers of 4 bytes: 256 KiB, four samples of 64 KiB
SAMPLES = 4
BATCHES = 120
HELD = (0, 3, 20)  # batches that are taken: the first ones may lie elsewhere than later ones
PATIENCE_S = 60.0

_RAMP = torch.arange(SIDE * SIDE, dtype=torch.int32).reshape(SIDE, SIDE)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Leave the cores to the workers; a forked child could not use OpenMP's threads anyway."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def batch_of(number: int) -> torch.Tensor:
    """Make what the loader delivers as its batch of this number."""
    return _RAMP + 1_000_000 * number


def batch_of_floats(number: int) -> torch.Tensor:
    return batch_of(number).to(torch.float32)


class Quarters:
    """A sample is a quarter of a batch; default collate with `flat` puts four together."""

    def __init__(self, batches: int = BATCHES) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return SAMPLES * self.batches

    def __getitem__(self, index: int) -> torch.Tensor:
        number, part = divmod(index, SAMPLES)
        rows = SIDE // SAMPLES
        return batch_of(number)[part * rows : (part + 1) * rows].clone()


class Whole:
    """A sample is a whole batch, in one of several forms."""

    def __init__(self, form: str, batches: int = BATCHES) -> None:
        self.form, self.batches = form, batches

    def __len__(self) -> int:
        return self.batches

    def __getitem__(self, number: int) -> Any:
        match self.form:
            case "tensor":
                return batch_of(number)
            case "floats":
                return batch_of_floats(number)
            case "array":
                return batch_of(number).numpy()
            case "mixed":
                return mixed_of(number)
        raise AssertionError(self.form)


def mixed_of(number: int) -> dict[str, Any]:
    """Make a batch of large and small parts, of tensors, arrays and plain things."""
    large = batch_of(number)
    return {
        "number": number,
        "large": large,
        "bytes": large.view(torch.uint8)[: SIDE // 2].clone(),
        "array": large.numpy()[: SIDE // 2].copy(),
        "small": torch.full((5,), number),
        "smaller": np.full((3, 2), number, dtype=np.int16),
        "name": f"batch {number}",
        "more": [torch.full((n,), number, dtype=torch.int64) for n in (1, 1000, 20_000)],
    }


def as_it_is(sample: Any) -> Any:
    return sample


def loader_of(form: str, **arguments: Any) -> DataLoader[Any]:
    """Make a loader over batches of a form; `collated` is what default collate makes."""
    arguments = {"num_workers": 2, **arguments}
    if form == "collated":
        return DataLoader(Quarters(), batch_size=SAMPLES, **arguments)
    return DataLoader(Whole(form), batch_size=None, collate_fn=as_it_is, **arguments)


def expected(form: str, number: int) -> Any:
    match form:
        case "collated":
            return batch_of(number).reshape(SAMPLES, SIDE // SAMPLES, SIDE)
        case "tensor":
            return batch_of(number)
        case "floats":
            return batch_of_floats(number)
        case "array":
            return batch_of(number).numpy()
        case "mixed":
            return mixed_of(number)
    raise AssertionError(form)


def same(one: Any, other: Any) -> bool:
    """Compare two batches, part by part."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other)
    return bool(one == other)


def held_while_recycling(
    form: str, hold: Callable[[Any], Any], **arguments: Any
) -> list[tuple[int, Any]]:
    """Make holders of some batches, let go of the batches, and recycle hard."""
    return hold_in_an_epoch(loader_of(form, **arguments), form, hold)


def hold_in_an_epoch(
    loader: DataLoader[Any], form: str, hold: Callable[[Any], Any]
) -> list[tuple[int, Any]]:
    holders = []
    numbers = 0
    for number, batch in enumerate(loader):
        if number in HELD:
            holders.append((number, hold(batch)))
        elif number % 20 == 0:
            assert same(batch, expected(form, number)), number
        if number == HELD[-1]:
            del batch
            gc.collect()
        numbers += 1
    assert numbers == BATCHES
    return holders


def seen(holder: Any) -> list[np.ndarray[Any, Any]]:
    """Read all that a holder shows, whatever it is."""
    if isinstance(holder, list | tuple):
        return [array for part in holder for array in seen(part)]
    if isinstance(holder, torch.UntypedStorage):
        holder = torch.empty(0, dtype=torch.uint8).set_(holder)
    elif isinstance(holder, pickle.PickleBuffer):
        holder = holder.raw()
    elif type(holder).__name__ == "PyCapsule":
        holder = torch.utils.dlpack.from_dlpack(holder)
    if isinstance(holder, torch.Tensor):
        holder = holder.detach().resolve_conj().numpy()
    return [np.array(holder)]


def buffers_of(array: np.ndarray[Any, Any]) -> list[pickle.PickleBuffer]:
    """Pickle an array and keep nothing but the buffers."""
    buffers: list[pickle.PickleBuffer] = []
    pickle.dumps(array, protocol=5, buffer_callback=buffers.append)
    assert buffers
    return buffers


OF_A_TENSOR: dict[str, Callable[[torch.Tensor], Any]] = {
    "itself": lambda t: t,
    "a column of some rows": lambda t: t[1:, 2],
    "a view of another shape": lambda t: t.view(-1, 8),
    "a view of another type": lambda t: t.view(torch.uint8)[3:],
    "the transpose": lambda t: t.T,
    "a part of unbind": lambda t: t.unbind()[2],
    "a part of split": lambda t: t.split(100)[1],
    "expanded": lambda t: t[:1].expand(3, -1),
    "detached": lambda t: t.detach(),
    "data": lambda t: t.data,
    "its storage": lambda t: t.untyped_storage(),
    "another tensor on its storage": lambda t: torch.empty(0, dtype=t.dtype).set_(t),
    "numpy": lambda t: t.numpy(),
    "a slice of numpy": lambda t: t.numpy()[5::3, 7],
    "numpy and back": lambda t: torch.from_numpy(t.numpy()[1:]),
    "a memoryview": lambda t: memoryview(t.numpy()),
    "a piece of a memoryview": lambda t: memoryview(t.numpy()).cast("B")[4096:9000],
    "frombuffer of a memoryview": lambda t: np.frombuffer(memoryview(t.numpy()), dtype=np.int32),
    "torch.frombuffer of numpy": lambda t: torch.frombuffer(t.numpy(), dtype=torch.int32)[9:],
    "torch.asarray": lambda t: torch.asarray(t.numpy()),
    "DLPack to torch": lambda t: torch.from_dlpack(t),
    "DLPack to numpy": lambda t: np.from_dlpack(t),
    "DLPack of a slice": lambda t: np.from_dlpack(t[3:, 4:]),
    "a DLPack capsule nobody has opened": lambda t: torch.utils.dlpack.to_dlpack(t),
    "buffers of a pickle": lambda t: buffers_of(t.numpy()),
    "a copy": lambda t: copy.copy(t),
    "a deep copy": lambda t: copy.deepcopy(t),
    "a subclass": lambda t: t.as_subclass(Named),
    "a parameter": lambda t: torch.nn.Parameter(t, requires_grad=False),
    "an iterator over it": lambda t: iter(t),
}


class Named(torch.Tensor):
    pass


OF_AN_ARRAY: dict[str, Callable[[np.ndarray[Any, Any]], Any]] = {
    "itself": lambda a: a,
    "a column of some rows": lambda a: a[1:, 2],
    "the transpose": lambda a: a.T,
    "reshaped and thinned": lambda a: a.reshape(-1)[::2],
    "a view of another type": lambda a: a.view(np.uint8)[3:],
    "a view of a view": lambda a: a[1:].view(np.int16)[:, 1:][2:],
    "as strided": lambda a: np.lib.stride_tricks.sliding_window_view(a, (3, 3))[::50, ::50],
    "a memoryview": lambda a: memoryview(a),
    "frombuffer": lambda a: np.frombuffer(a, dtype=np.int32),
    "torch of it": lambda a: torch.from_numpy(a),
    "torch of a slice": lambda a: torch.as_tensor(a[4:]),
    "DLPack": lambda a: torch.from_dlpack(a),
    "buffers of a pickle": lambda a: buffers_of(a),
    "an iterator over it": lambda a: iter(a),
}


def read_later(holder: Any) -> list[np.ndarray[Any, Any]]:
    return seen(list(holder) if isinstance(holder, Iterator) else holder)


def in_groups(names: Iterable[str]) -> list[list[str]]:
    """Few at a time: starting workers takes longer than an epoch."""
    listed = list(names)
    return [listed[place : place + 5] for place in range(0, len(listed), 5)]


def tell(names: list[str]) -> str:
    return ", ".join(names)


@pytest.mark.parametrize("names", in_groups(OF_A_TENSOR), ids=tell)
def test_what_was_made_of_a_tensor_keeps_its_values(names: list[str]) -> None:
    loader = loader_of("tensor", persistent_workers=True)
    for name in names:
        hold = OF_A_TENSOR[name]
        for number, holder in hold_in_an_epoch(loader, "tensor", hold):
            wanted = read_later(hold(batch_of(number)))
            assert all(map(np.array_equal, read_later(holder), wanted)), (name, number)


@pytest.mark.parametrize("names", in_groups(OF_AN_ARRAY), ids=tell)
def test_what_was_made_of_an_array_keeps_its_values(names: list[str]) -> None:
    loader = loader_of("array", persistent_workers=True)
    for name in names:
        hold = OF_AN_ARRAY[name]
        for number, holder in hold_in_an_epoch(loader, "array", hold):
            wanted = read_later(hold(batch_of(number).numpy()))
            assert all(map(np.array_equal, read_later(holder), wanted)), (name, number)


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("form", ["collated", "mixed"])
def test_a_whole_batch_keeps_its_values(form: str, workers: int, persistent: bool) -> None:
    arguments = {"num_workers": workers, "persistent_workers": persistent}
    for number, batch in held_while_recycling(form, lambda batch: batch, **arguments):
        assert same(batch, expected(form, number))


PARTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "the large tensor": lambda batch: batch["large"],
    "the bytes": lambda batch: batch["bytes"],
    "the array": lambda batch: batch["array"],
    "the small tensor": lambda batch: batch["small"],
    "the small array": lambda batch: batch["smaller"],
    "a row of the last tensor": lambda batch: batch["more"][-1][77:],
    "the list": lambda batch: batch["more"],
}


def test_one_part_of_a_batch_outlives_the_others() -> None:
    loader = loader_of("mixed", persistent_workers=True)
    for name, part in PARTS.items():
        for number, holder in hold_in_an_epoch(loader, "mixed", part):
            assert same(holder, part(mixed_of(number))), (name, number)


def test_an_autograd_graph_keeps_what_it_saved_for_backward() -> None:
    weight = torch.full((SIDE,), 2.0, requires_grad=True)
    matrix = torch.eye(SIDE, requires_grad=True)

    def hold(batch: torch.Tensor) -> torch.Tensor:
        return ((batch / 1000) * weight).sum() + (batch @ matrix).square().mean()

    for number, loss in held_while_recycling("floats", hold):
        wanted = torch.autograd.grad(hold(batch_of_floats(number)), [weight, matrix])
        gradients = torch.autograd.grad(loss, [weight, matrix])
        for gradient, right in zip(gradients, wanted, strict=True):
            assert torch.allclose(gradient, right)


def test_a_graph_that_saved_the_batch_itself_gives_its_gradient() -> None:
    weight = torch.ones(SIDE, SIDE, requires_grad=True)
    for number, loss in held_while_recycling("floats", lambda batch: (batch * weight).sum()):
        (gradient,) = torch.autograd.grad(loss, weight)
        assert torch.equal(gradient, batch_of_floats(number))


# --- copies and files ----------------------------------------------------------------------------


def saved(thing: Any) -> bytes:
    file = io.BytesIO()
    torch.save(thing, file)
    return file.getvalue()


COPIES: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda batch: pickle.loads(pickle.dumps(batch)),
    "torch.save": lambda batch: torch.load(io.BytesIO(saved(batch)), weights_only=False),
}


@pytest.mark.parametrize("way", COPIES)
def test_a_copy_is_its_own(way: str) -> None:
    for number, copied in held_while_recycling("mixed", COPIES[way]):
        assert same(copied, mixed_of(number))


@pytest.mark.parametrize("write", [saved, pickle.dumps], ids=["torch.save", "pickle"])
def test_a_file_holds_the_batch_and_no_more(write: Callable[[Any], bytes]) -> None:
    for number, size in held_while_recycling("mixed", lambda batch: len(write(batch))):
        clone = len(write(mixed_of(number)))
        assert abs(size - clone) < 4096, f"{size} bytes where a clone takes {clone}"


def test_the_storage_of_every_tensor_is_its_own_bytes() -> None:
    def tensors(batch: dict[str, Any]) -> list[torch.Tensor]:
        return [batch["large"], batch["bytes"], batch["small"], *batch["more"]]

    def sizes(batch: dict[str, Any]) -> list[tuple[int, int]]:
        return [(t.untyped_storage().nbytes(), t.storage_offset()) for t in tensors(batch)]

    for number, found in held_while_recycling("mixed", sizes):
        wanted = [(t.numel() * t.element_size(), 0) for t in tensors(mixed_of(number))]
        assert found == wanted


def test_a_collated_tensor_is_its_own_bytes() -> None:
    for _, size in held_while_recycling("collated", lambda t: t.untyped_storage().nbytes()):
        assert size == 4 * SIDE * SIDE


def test_tensors_of_a_batch_do_not_share_bytes() -> None:
    for number, batch in enumerate(loader_of("mixed")):
        if number in HELD:
            batch["large"].zero_()
            batch["more"][1].fill_(-1)
            batch["array"][:] = 7
            wanted = mixed_of(number)
            for key in ("bytes", "small", "smaller", "name"):
                assert same(batch[key], wanted[key])
            assert same(batch["more"][2], wanted["more"][2])


# --- other processes -----------------------------------------------------------------------------

FORKING = f"""
    import gc, multiprocessing
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


# --- who drops it, when and where ----------------------------------------------------------------


def test_batches_dropped_in_another_thread() -> None:
    waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
    wrong: list[int] = []

    def drop() -> None:
        held: deque[tuple[int, torch.Tensor]] = deque()
        while (item := waiting.get()) is not None:
            held.append(item)
            item = None
            if len(held) > 5:
                number, batch = held.popleft()
                if not torch.equal(batch, batch_of(number)):
                    wrong.append(number)
                del batch

    thread = threading.Thread(target=drop)
    thread.start()
    try:
        loader = loader_of("tensor", persistent_workers=True)
        for _ in range(3):
            for number, batch in enumerate(loader):
                waiting.put((number, batch))
                del batch
    finally:
        waiting.put(None)
        thread.join()
    assert not wrong


class Knot:
    """Holds a batch in a cycle, so that only a collection drops it."""

    def __init__(self, number: int, batch: Any) -> None:
        self.number, self.batch, self.me = number, batch, self


def test_batches_dropped_inside_garbage_collection_in_any_thread() -> None:
    dice = random.Random(11)
    over = threading.Event()

    def collect() -> None:
        while not over.wait(0.001):
            gc.collect(1)

    threads = [threading.Thread(target=collect) for _ in range(2)]
    for thread in threads:
        thread.start()
    kept: list[Knot] = []
    try:
        loader = loader_of("tensor", persistent_workers=True)
        for _ in range(3):
            for number, batch in enumerate(loader):
                knot = Knot(number, batch)
                if dice.random() < 0.2:
                    kept.append(knot)
                if len(kept) > 6:
                    old = kept.pop(dice.randrange(len(kept)))
                    assert torch.equal(old.batch, batch_of(old.number))
                    del old
                del batch, knot
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert all(torch.equal(knot.batch, batch_of(knot.number)) for knot in kept)


def test_batches_kept_for_random_times_in_random_ways() -> None:
    dice = random.Random(7)
    names = sorted(set(OF_A_TENSOR) - {"an iterator over it"})
    kept: list[tuple[int, str, Any]] = []
    for _ in range(2):
        for number, batch in enumerate(loader_of("tensor", prefetch_factor=4)):
            name = dice.choice(names)
            kept.append((number, name, OF_A_TENSOR[name](batch)))
            del batch
            while len(kept) > 12:
                old, name, holder = kept.pop(dice.randrange(len(kept)))
                wanted = seen(OF_A_TENSOR[name](batch_of(old)))
                assert all(map(np.array_equal, seen(holder), wanted)), (old, name)
                del holder


def _mappings() -> int:
    with open("/proc/self/maps") as lines:
        return sum(1 for _ in lines)


def test_every_batch_of_an_epoch_can_be_kept() -> None:
    length = 300
    loader = DataLoader(
        Whole("tensor", length), batch_size=None, num_workers=2, persistent_workers=True
    )
    for number, batch in enumerate(loader):
        assert torch.equal(batch, batch_of(number))
    del batch
    descriptors, mappings = len(os.listdir("/proc/self/fd")), _mappings()
    for _ in range(3):
        kept = list(loader)
        assert len(os.listdir("/proc/self/fd")) < descriptors + 40
        assert _mappings() < mappings + length + 60  # one each at most
        for number, batch in enumerate(kept):
            assert torch.equal(batch, batch_of(number))
        del kept, batch
        gc.collect()
        assert _mappings() < mappings + 60


def test_batches_outlive_their_loader_and_its_workers() -> None:
    for form in ("collated", "mixed"):
        loader = loader_of(form, persistent_workers=True)
        kept = [batch for _, batch in zip(range(8), loader, strict=False)]
        del loader
        gc.collect()
        held_while_recycling(form, lambda batch: None)
        assert all(same(batch, expected(form, n)) for n, batch in enumerate(kept))


def test_batches_of_loaders_that_run_side_by_side_do_not_mix() -> None:
    one, other = iter(loader_of("tensor")), iter(loader_of("array"))
    held: deque[tuple[int, Any, Any]] = deque()
    for number, (tensor, array) in enumerate(zip(one, other, strict=True)):
        held.append((number, tensor[1:], array[1:]))
        del tensor, array
        if len(held) > 3:
            old, rows, lines = held.popleft()
            assert torch.equal(rows, batch_of(old)[1:])
            assert np.array_equal(lines, batch_of(old).numpy()[1:])
            del rows, lines


# --- what the worker keeps, what the user writes -------------------------------------------------


class Remembers:
    """Collates, keeps what came of it, and every third time returns an old one again."""

    def __init__(self) -> None:
        self.kept: deque[dict[str, Any]] = deque(maxlen=3)
        self.calls = 0

    def __call__(self, samples: list[torch.Tensor]) -> dict[str, Any]:
        self.calls += 1
        if self.calls % 3 == 0:
            return self.kept[0]
        number = int(samples[0][0, 0]) // 1_000_000
        batch = {"number": number, "rows": default_collate(samples)}
        self.kept.append(batch)
        return batch


def test_a_collate_function_may_keep_what_it_collated() -> None:
    loader = DataLoader(Quarters(), batch_size=SAMPLES, num_workers=2, collate_fn=Remembers())
    again = 0
    held = []
    for place, batch in enumerate(loader):
        again += batch["number"] != place
        assert same(batch["rows"], expected("collated", batch["number"])), place
        if place in HELD:
            held.append((batch["number"], batch["rows"].numpy()))
        else:
            batch["rows"].zero_()  # the user's copy; the one in the worker is not
    assert again > BATCHES // 4
    for number, rows in held:
        assert np.array_equal(rows, expected("collated", number).numpy())


class CollatesItself:
    """Calls default collate for purposes of its own, and keeps what came of it."""

    def __init__(self) -> None:
        self.quarters = Quarters()
        self.kept: dict[int, torch.Tensor] = {}

    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, number: int) -> list[Any]:
        first = SAMPLES * number
        batch = default_collate([self.quarters[first + part] for part in range(SAMPLES)])
        self.kept.setdefault(number % 4, batch)
        earlier = self.kept[number % 4]
        return [number, batch, int(earlier[0, 0, 0]) // 1_000_000, earlier]


def test_a_dataset_may_call_default_collate_and_keep_what_came() -> None:
    for number, batch in enumerate(
        DataLoader(CollatesItself(), batch_size=None, collate_fn=as_it_is, num_workers=2)
    ):
        assert batch[0] == number
        assert same(batch[1], expected("collated", number))
        assert batch[2] % 4 == number % 4
        assert same(batch[3], expected("collated", batch[2]))


def collate_twice(samples: list[torch.Tensor]) -> list[torch.Tensor]:
    return [default_collate(samples), default_collate([-sample for sample in samples])]


def test_a_collate_function_may_collate_twice() -> None:
    loader = DataLoader(Quarters(), batch_size=SAMPLES, num_workers=2, collate_fn=collate_twice)
    for number, (one, other) in enumerate(loader):
        assert same(one, expected("collated", number))
        assert same(other, -expected("collated", number))


class Cached:
    """Returns one and the same tensor each time."""

    def __init__(self) -> None:
        self.tensor = batch_of(5)
        self.array = batch_of(6).numpy()

    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, Any]:
        return self.tensor, self.array


def first_of(samples: list[Any]) -> Any:
    return samples[0]


@pytest.mark.parametrize(
    "arguments",
    [{"batch_size": None, "collate_fn": as_it_is}, {"batch_size": 1, "collate_fn": first_of}],
    ids=["no collation", "the first sample"],
)
@pytest.mark.parametrize("spoil", ["add_", "numpy"])
def test_a_tensor_the_dataset_keeps_is_never_changed_by_the_user(
    arguments: dict[str, Any], spoil: str
) -> None:
    dataset = Cached()
    for tensor, array in DataLoader(dataset, num_workers=2, **arguments):
        assert torch.equal(tensor, batch_of(5))
        assert np.array_equal(array, batch_of(6).numpy())
        match spoil:
            case "add_":
                tensor.add_(1)
            case "numpy":
                tensor.numpy()[:] = -1
        array[:] = 0
    assert torch.equal(dataset.tensor, batch_of(5))
    assert np.array_equal(dataset.array, batch_of(6).numpy())


@pytest.mark.parametrize("form", ["collated", "tensor"])
def test_what_the_user_writes_never_shows_in_later_batches(form: str) -> None:
    loader = loader_of(form, persistent_workers=True)
    for _ in range(2):
        for number, batch in enumerate(loader):
            assert same(batch, expected(form, number)), number
            if number % 2:
                batch.add_(1)
            else:
                batch.zero_()


def test_what_the_user_wrote_stays_written() -> None:
    for number, batch in held_while_recycling("collated", lambda batch: batch.add_(1)[:]):
        assert same(batch, expected("collated", number) + 1)


class Short(Whole):
    """Batches of two sizes by turns: a short one in memory where a long one lay."""

    def __getitem__(self, number: int) -> torch.Tensor:
        batch = batch_of(number)
        return batch[: SIDE - 100] if number % 2 else batch


def test_a_shorter_batch_shows_nothing_of_a_longer_one() -> None:
    loader = DataLoader(Short("tensor"), batch_size=None, collate_fn=as_it_is, num_workers=2)
    held = []
    for number, batch in enumerate(loader):
        wanted = batch_of(number)[: SIDE - 100] if number % 2 else batch_of(number)
        assert torch.equal(batch, wanted)
        assert batch.untyped_storage().nbytes() == wanted.numel() * 4
        if number % 20 < 2:
            held.append((batch[3:], wanted[3:]))
    assert all(torch.equal(batch, wanted) for batch, wanted in held)


def test_a_killed_worker_takes_no_delivered_batch_with_it() -> None:
    iterator = iter(loader_of("tensor"))
    kept = [next(iterator) for _ in range(6)]
    for worker in iterator._workers:
        worker.kill()
    for number, batch in enumerate(iterator, start=6):
        assert torch.equal(batch, batch_of(number))
    assert all(torch.equal(batch, batch_of(number)) for number, batch in enumerate(kept))
