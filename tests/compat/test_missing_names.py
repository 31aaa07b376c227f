"""A torch without one of its private names: right batches, one notice, and no exception."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from antifreeze import _torch_internals
from antifreeze._torch_internals import ITERATOR_ATTRIBUTES, LOADER_ATTRIBUTES

from ..forked_programs import run_script
from ..patience import PATIENCE_S
from ..repetition import some_of

RENAMING = Path(__file__).with_name("renaming.py")
# What every loader needs: without it torch's own does the work.
NAMES = (
    "_BaseDataLoaderIter",
    "_DatasetKind",
    "WorkerInfo",
    "_worker_info",
    "default_collate_fn_map",
)
ATTRIBUTES = sorted({*LOADER_ATTRIBUTES, *ITERATOR_ATTRIBUTES} - {*NAMES})
NEEDED = dict.fromkeys((*NAMES, *ATTRIBUTES), "numbers")
NEEDED_USUAL = len(NAMES) + 2
# What has another way for numbers, and for the tensors that are made with it.
RARE = {
    "torch._C._autograd._profiler_enabled": "numbers",
    "torch.multiprocessing.reductions.reduce_tensor": "numbers",
    "IterDataPipe": "numbers",
    "_MultiProcessingDataLoaderIter": "numbers",
    "_share_dist_seed": "numbers",
    "torch._make_per_tensor_quantized_tensor": "quantized",
    "torch._nested_view_from_buffer": "nested",
    # The same once more: by another function, or for another kind of dataset or tensor.
    "torch.multiprocessing.reductions.reduce_storage": "numbers",
    "torch._make_per_channel_quantized_tensor": "quantized",
    "MapDataPipe": "numbers",
    "torch.utils.data._utils.pin_memory.pin_memory": "numbers",
}
RARE_USUAL = 7
# What only some loaders need: these have torch's own iterator.
FOR_SOME = {
    "_share_dist_seed": "piped",
    "torch.utils.data._utils.pin_memory.pin_memory": "pinned",
    "_sharding_worker_init_fn": "piped",
    "apply_sharding": "piped",
    "apply_random_seed": "piped",
}
FOR_SOME_USUAL = 2


@functools.cache
def outcomes(kind: str, names: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, str(RENAMING), kind, *names],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    return {told["name"]: told for told in map(json.loads, done.stdout.splitlines())}


def outcome_of(name: str, table: dict[str, str], usual: int) -> dict[str, Any]:
    """Ask one program for all names of a kind, of those that `make test` asks for or the others."""
    first = [*table][:usual]
    alike = (each for each in table if (each in first) == (name in first))
    return outcomes(table[name], tuple(each for each in alike if table[each] == table[name]))[name]


@pytest.mark.parametrize("name", some_of(NEEDED, NEEDED_USUAL))
def test_without_a_name_that_is_needed_torchs_loader_works_and_one_notice_says_so(
    name: str,
) -> None:
    told = outcome_of(name, NEEDED, NEEDED_USUAL)
    assert told["exit"] == 0, told
    assert told["right"] and told["engines"] == ["torch"]
    assert len(told["notices"]) == 1 and name in told["notices"][0]
    assert "works as torch's here. Set ANTIFREEZE=off" in told["notices"][0]


@pytest.mark.parametrize("name", some_of(RARE, RARE_USUAL))
def test_without_a_name_that_is_rarely_needed_ours_works_and_says_nothing(name: str) -> None:
    told = outcome_of(name, RARE, RARE_USUAL)
    assert told["exit"] == 0, told
    assert told["right"] and told["engines"] == ["antifreeze"] and told["notices"] == []


@pytest.mark.parametrize("name", some_of(FOR_SOME, FOR_SOME_USUAL))
def test_without_a_name_that_some_loaders_need_those_alone_fall_back(name: str) -> None:
    told = outcome_of(name, FOR_SOME, FOR_SOME_USUAL)
    assert told["exit"] == 0, told
    assert told["right"] and told["engines"] == ["torch"]
    assert len(told["notices"]) == 1 and name.rpartition(".")[2] in told["notices"][0]


@pytest.mark.parametrize("kind", ["numbers", "pinned", "piped", "quantized", "nested"])
def test_with_every_name_in_its_place_ours_works(kind: str) -> None:
    told = outcomes(kind, ("_a_name_that_nobody_has",))["_a_name_that_nobody_has"]
    assert told["exit"] == 0, told
    assert told["right"] and told["engines"] == ["antifreeze"] and told["notices"] == []


LOADING = """
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    # Python's own, from 3.12 on, at every fork: it also counts threads that are just ending.
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
    from antifreeze import DataLoader
    for workers in (0, 2):
        loader = DataLoader(range(10), batch_size=4, num_workers=workers)
        iterator = iter(loader)
        print(type(iterator).__module__.partition(".")[0])
        assert [b.tolist() for b in iterator] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
        loader.stats(), loader.explain(), repr(loader), loader.snapshot()
print(*(each.message for each in caught), sep="\\n")
"""


def run(folder: Path, change: str, **environment: str) -> list[str]:
    """Run a program that changes torch before our package is imported; give what it prints."""
    program = f"import warnings, torch\nfrom torch.utils.data import dataloader\n{change}{LOADING}"
    script = folder / "program.py"
    script.write_text(program)
    done = run_script(script, env=os.environ | environment, cwd=folder)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return done.stdout.split("\n")[:-1]


WITHOUT_IN_ORDER = """
import functools
real = dataloader.DataLoader.__init__
def init(self, dataset, batch_size=1, num_workers=0, pin_memory=False, timeout=0,
         collate_fn=None, shuffle=None, sampler=None, batch_sampler=None, drop_last=False,
         worker_init_fn=None, multiprocessing_context=None, generator=None, *,
         prefetch_factor=None, persistent_workers=False, pin_memory_device=""):
    given = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
    real(self, **given)
    del self.in_order  # as before 2.6
dataloader.DataLoader.__init__ = init
"""


@pytest.mark.parametrize("version", some_of(["2.5.1+cu124", "1.13.1", "2.5.1", "2.0"], 2))
def test_a_torch_before_2_6_has_its_own_loader_and_one_clear_line(
    tmp_path: Path, version: str
) -> None:
    *engines, notice = run(tmp_path, f"torch.__version__ = {version!r}\n")
    assert engines == ["torch", "torch"]
    assert notice == (
        f"antifreeze needs torch 2.6 or newer; this is {version}: DataLoader works as torch's"
        " here. Set ANTIFREEZE=off to silence this notice."
    )


@pytest.mark.parametrize("version", some_of(["2.16.0a0+git1234567", "3.0.0", "2.6.0", "2.99.0"], 2))
def test_a_torch_that_nobody_has_tested_has_our_loader_if_every_name_is_there(
    tmp_path: Path, version: str
) -> None:
    assert run(tmp_path, f"torch.__version__ = {version!r}\n") == ["antifreeze", "antifreeze", ""]


def test_the_switch_silences_the_notice_about_an_old_torch(tmp_path: Path) -> None:
    assert run(tmp_path, "torch.__version__ = '2.5.1'\n", ANTIFREEZE="off") == [
        "torch",
        "torch",
        "",
    ]


CHANGED = {
    "worker info with one more field": """
        import dataclasses
        from torch.utils.data._utils import worker
        real = worker.WorkerInfo
        @dataclasses.dataclass
        class WorkerInfo:
            id: int
            num_workers: int
            seed: int
            dataset: object
            method: str
        worker.WorkerInfo = WorkerInfo
    """,
    "worker info that is kept elsewhere": """
        from torch.utils.data._utils import worker
        def get_worker_info(): return kept
        worker.get_worker_info = get_worker_info
    """,
}


@pytest.mark.parametrize("change", CHANGED.values(), ids=CHANGED)
def test_a_name_that_is_not_as_it_was_counts_as_missing(tmp_path: Path, change: str) -> None:
    change = textwrap.dedent(change) + "import antifreeze._torch_internals as internals\n"
    change += "assert internals.missing()[0].endswith(' as it was')\n"
    change += "try: worker.WorkerInfo = real\nexcept NameError: pass\n"  # torch needs it
    *engines, notice = run(tmp_path, change)
    assert engines == ["torch", "torch"] and "as it was, which torch" in notice


def test_attributes_behind_the_methods_of_another_library_are_found(tmp_path: Path) -> None:
    """A profiler may put its own function around torch's, and not say what it wraps."""
    change = """
        real = dataloader._BaseDataLoaderIter.__init__
        def timed(self, loader): real(self, loader)
        dataloader._BaseDataLoaderIter.__init__ = timed
    """
    assert run(tmp_path, textwrap.dedent(change)) == ["antifreeze", "antifreeze", ""]


def test_a_torch_without_in_order_can_be_printed_and_counted(tmp_path: Path) -> None:
    change = f"torch.__version__ = '2.5.1'\n{WITHOUT_IN_ORDER}"
    *engines, notice = run(tmp_path, change)
    assert engines == ["torch", "torch"] and notice.startswith("antifreeze needs torch 2.6")


class Bare:
    """A thing of a torch that tells nothing of it."""

    def untyped(self) -> str:
        return "public"


def test_what_cannot_be_taken_from_torch_has_another_way_too() -> None:
    bare: Any = Bare()
    assert _torch_internals.version_of(bare) == 0
    assert _torch_internals.address_of(bare) is None
    assert _torch_internals.ragged_dimension(bare) is None
    assert _torch_internals.nested_layout(bare) is None
    assert _torch_internals.untyped(bare) == "public"


def test_a_notice_about_many_names_lists_a_few_of_them(tmp_path: Path) -> None:
    change = "from torch.utils.data._utils import worker, collate\n"
    change += "info, functions = worker.WorkerInfo, collate.default_collate_fn_map\n"
    change += "del worker.WorkerInfo, worker._worker_info, collate.default_collate_fn_map\n"
    change += "del worker.get_worker_info\n"
    change += "import antifreeze._torch_internals\n"
    change += "worker.WorkerInfo, worker._worker_info = info, None\n"
    change += "collate.default_collate_fn_map = functions\n"
    *_, notice = run(tmp_path, change)
    assert notice.count("torch.utils.data._utils") == 3 and " and 1 more, which torch" in notice
