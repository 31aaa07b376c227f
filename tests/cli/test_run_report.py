"""What `antifreeze run` tells: at the end, and when a signal asks for it."""

from __future__ import annotations

import signal
import subprocess
import textwrap
import time
from pathlib import Path

import pytest

from ..patience import PATIENCE_S
from ..photos import PHOTOS, RAISED_AT
from .running import NO_LOADER, OURS, both, start, write

TRUNCATED = f"OSError: truncated at train.py:{RAISED_AT}, in __getitem__"


def test_faults_are_told_at_the_end_after_what_the_script_does_then(tmp_path: Path) -> None:
    write(
        tmp_path,
        PHOTOS
        + textwrap.dedent(
            """
            import atexit, sys
            def train():
                for batch in DataLoader(Photos(), batch_size=5):
                    print(batch.tolist())
            train()  # the loader is gone by the end
            atexit.register(print, "the script's last word", file=sys.stderr)
            """
        ),
    )
    done = start(tmp_path, *OURS, "--on-error", "replace", "train.py")
    assert done.returncode == 0 and done.stdout == b"[0, 1, 2, 4, 4]\n[5, 6, 7, 8, 9]\n"
    said = done.stderr.decode()
    last = said.partition("the script's last word\n")[2]
    assert last.startswith("antifreeze: DataLoader (train.py:"), said
    assert last.endswith(f"  exception of sample 3, replaced: {TRUNCATED}\n"), said


@pytest.mark.parametrize(
    ("workers", "verdict"),
    [
        (0, "replaced"),
        (1, "raised"),
        pytest.param(0, "raised", marks=pytest.mark.thorough),
        pytest.param(1, "replaced", marks=pytest.mark.thorough),
    ],
)
def test_a_fault_is_told_with_its_own_words_and_its_place_wherever_it_was_raised(
    tmp_path: Path, workers: int, verdict: str
) -> None:
    write(
        tmp_path,
        PHOTOS
        + textwrap.dedent(
            f"""
            loader = DataLoader(Photos(), batch_size=5, num_workers={workers})
            try:
                list(loader)
            except OSError:
                pass
            """
        ),
    )
    done = start(tmp_path, *OURS, "--on-error", verdict.removesuffix("d"), "train.py")
    said = done.stderr.decode()
    assert done.returncode == 0 and done.stdout == b"", said
    assert said.endswith(f"  exception of sample 3, {verdict}: {TRUNCATED}\n"), said


def test_an_error_of_a_whole_batch_is_told_with_its_samples(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
        from torch.utils.data import DataLoader
        def collate(samples):
            raise ValueError("of different sizes\\nand more")
        try:
            list(DataLoader([1, 2], batch_size=2, num_workers=1, collate_fn=collate))
        except ValueError:
            pass
        """,
    )
    said = start(tmp_path, *OURS, "train.py").stderr.decode()
    words = "exception of samples [0, 1], raised: ValueError: of different sizes"
    assert said.endswith(f"  {words} at train.py:4, in collate\n"), said


def test_a_script_that_fails_at_once_is_told_its_fault_and_nothing_of_speed(tmp_path: Path) -> None:
    loop = "\nfor batch in DataLoader(Photos(), batch_size=5, num_workers=1):\n    pass\n"
    write(tmp_path, PHOTOS + loop)
    done = start(tmp_path, *OURS, "train.py")
    said = done.stderr.decode()
    assert done.returncode == 1 and "waited for data" not in said, said
    last = said.splitlines()[-1]
    assert last.startswith("antifreeze: DataLoader (train.py:"), said
    assert last.endswith(f"): exception of sample 3, raised: {TRUNCATED}"), said


def test_faults_are_counted_all_and_the_last_ones_shown(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
        from torch.utils.data import DataLoader
        class Photos:
            def __len__(self):
                return 24
            def __getitem__(self, index):
                if index < 18:
                    raise OSError("truncated")
                return index
        list(DataLoader(Photos(), batch_size=24))
        """,
    )
    lines = start(tmp_path, *OURS, "--on-error", "skip", "train.py").stderr.decode().splitlines()
    assert lines[-6] == "  18 faults, the last 5:", lines
    assert ["of sample" in line for line in lines[-6:]] == [False, *[True] * 5]


def test_a_lost_worker_is_told_at_length_when_it_happens_and_briefly_at_the_end(
    tmp_path: Path,
) -> None:
    write(
        tmp_path,
        """
        import os, signal
        from torch.utils.data import DataLoader
        class Photos:
            def __len__(self):
                return 8
            def __getitem__(self, index):
                if index == 3:
                    os.kill(os.getpid(), signal.SIGKILL)
                return index
        list(DataLoader(Photos(), batch_size=2, num_workers=1))
        """,
    )
    said = start(tmp_path, *OURS, "--on-error", "replace", "train.py").stderr.decode()
    first, _, last = said.partition("antifreeze: DataLoader (")
    assert "is killed by signal: Killed" in first, said
    assert last.endswith(
        "  crash of sample 3, retried: worker 0\n  crash of sample 3, replaced: worker 0\n"
    ), said


WAITS = """
    import os, signal, sys, time
    import torch
    from torch.utils.data import DataLoader, Dataset
    class Slow(Dataset):
        def __len__(self):
            return 4
        def __getitem__(self, index):
            while index == 3 and not os.path.exists("go"):
                time.sleep(0.05)
            return index
    own = []
    if len(sys.argv) > 1:
        signal.signal(signal.SIGUSR1, lambda *_: own.append(1))
    print("begun", flush=True)
    for batch in DataLoader(Slow(), num_workers=1):
        print(int(batch), flush=True)
    print("own", own)
"""


@pytest.mark.parametrize("own", [False, True])
def test_on_sigusr1_it_tells_at_once_unless_the_script_has_a_use_for_it(
    tmp_path: Path, own: bool
) -> None:
    write(tmp_path, WAITS)
    process = subprocess.Popen(
        [*OURS, "train.py", *(["own"] if own else [])],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    assert process.stdout is not None and process.stderr is not None
    assert [process.stdout.readline() for _ in range(4)] == ["begun\n", "0\n", "1\n", "2\n"]
    process.send_signal(signal.SIGUSR1)
    if not own:
        assert "DataLoader (train.py:16): the loop waited for" in process.stderr.readline()
        assert "1 epoch, 3 steps" in process.stderr.readline()
    time.sleep(0.2)  # the script's own is called before the last batch
    (tmp_path / "go").touch()
    out, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0 and out == ("3\nown [1]\n" if own else "3\nown []\n")
    assert "antifreeze: DataLoader (train.py:" in said


SIGNALLED = """
    import os, signal, time
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT):
        print(number.name, "free" if signal.getsignal(number) is signal.SIG_DFL else "taken")
        if signal.getsignal(number) is not signal.SIG_DFL:
            os.kill(os.getpid(), number)
"""


def test_the_signal_that_asks_for_a_report_may_be_named_in_a_slurm_job_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, SIGNALLED)
    write(tmp_path, SIGNALLED, "table/train.py")
    table = tmp_path / "table/pyproject.toml"
    table.write_text('[tool.antifreeze]\nsignal = "SIGQUIT"\n')
    commands = {
        ("train.py",): "",
        ("--signal", "USR1", "train.py"): "SIGUSR1",
        ("--signal=USR2", "train.py"): "SIGUSR2",
        ("table/train.py",): "SIGQUIT",
        ("--signal", "none", "table/train.py"): "",
    }
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    for command, taken in commands.items():
        each = start(tmp_path, *OURS, *command)
        names = ("SIGUSR1", "SIGUSR2", "SIGQUIT")
        expected = "".join(f"{name} {'taken' if name == taken else 'free'}\n" for name in names)
        assert each.stdout.decode() == expected, each
        told = NO_LOADER * (2 if taken else 1)
        if command == ("table/train.py",):
            told = f"antifreeze run: signal=SIGQUIT, from {table}\n{told}"
        assert each.stderr.decode() == told, each


def test_children_of_the_script_tell_nothing_and_die_of_sigusr1(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
        import os, signal, sys
        if os.fork() == 0:
            sys.exit(3)
        print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
        if os.fork() == 0:
            os.kill(os.getpid(), signal.SIGUSR1)
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.wait()[1]))
        """,
    )
    both(tmp_path, "train.py")


def test_stalls_are_told_while_it_runs(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
        import time
        from torch.utils.data import DataLoader, Dataset
        class Stuck(Dataset):
            def __len__(self):
                return 4
            def __getitem__(self, index):
                if index == 2:
                    time.sleep(1000)
                return index
        for batch in DataLoader(Stuck(), num_workers=1):
            pass
        """,
    )
    options = ["--sample-timeout", "0.5", "--on-error", "replace"]
    done = start(tmp_path, *OURS, *options, "train.py")
    said = done.stderr.decode()
    assert done.returncode == 0 and done.stdout == b"", said
    assert "hung for" in said.partition("antifreeze: DataLoader (")[0]
    assert "hang of sample 2, replaced" in said.partition("antifreeze: DataLoader (")[2]


@pytest.mark.parametrize("workers", [0, 1])
def test_when_a_loader_stalls_it_says_how_the_loop_stands(tmp_path: Path, workers: int) -> None:
    write(
        tmp_path,
        f"""
        import os, time
        from torch.utils.data import DataLoader
        class Slow:
            def __len__(self):
                return 8
            def __getitem__(self, index):
                if index == 5:
                    while not os.path.exists("enough"):
                        time.sleep(0.5)
                return index
        for batch in DataLoader(Slow(), batch_size=2, num_workers={workers}):
            pass
        """,
    )
    with subprocess.Popen([*OURS, "train.py"], stderr=subprocess.PIPE, cwd=tmp_path) as process:
        assert process.stderr is not None
        stall, stands = process.stderr.readline().decode(), process.stderr.readline().decode()
        (tmp_path / "enough").touch()
        rest = process.stderr.read().decode()
    assert "sample 5 (batch 2)" in stall
    assert "DataLoader (train.py:12): the loop waits for data now, since" in stands
    assert "for the dataset, waiting" in stands
    assert "within 10 s" not in rest
    assert "the loop waited for data" in rest
    assert process.returncode == 0
