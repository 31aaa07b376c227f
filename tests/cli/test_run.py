"""`antifreeze run`, beside `python`: an unmodified script behaves the same, with our loaders."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from antifreeze import _version

from ..patience import PATIENCE_S
from ..repetition import some_of
from .running import NO_LOADER, OURS, PLAIN, both, start, write


def test_the_script_finds_itself_as_under_python(tmp_path: Path) -> None:
    write(tmp_path, "value = 7\n", "deep/beside.py")
    write(
        tmp_path,
        '''
        """A script with a docstring."""
        from __future__ import annotations
        import sys, beside
        main = sys.modules["__main__"]
        for name, value in sorted(vars(main).items()):
            if name not in ("__builtins__", "__loader__"):
                print(name, value)
        print(type(__builtins__), type(__loader__), __loader__.name, __loader__.path)
        print(sys.argv, sys.path, beside.value, __name__)
        x: int = 3
        print(__annotations__)
        ''',
        "deep/train.py",
    )
    os.symlink("deep/train.py", tmp_path / "linked.py")
    done = both(tmp_path, "deep/train.py", "--help", "-m", "--", "--on-error", "x y", "")
    assert b"['deep/train.py', '--help', '-m', '--', '--on-error', 'x y', '']" in done.stdout
    paths = ["linked.py", "./deep/../deep/train.py", str(tmp_path / "deep/train.py")]
    for path in paths:
        ours = start(tmp_path, *OURS, "--", path)
        assert ours.stdout == start(tmp_path, *PLAIN, path).stdout


def test_modules_folders_and_packages_run_as_under_python(tmp_path: Path) -> None:
    code = (
        "import sys; print(sys.argv, __name__, __package__, __spec__.name, __file__, sys.path[0])"
    )
    write(tmp_path, "print('imported')", "package/__init__.py")
    write(tmp_path, code, "package/__main__.py")
    write(tmp_path, code + "\nfrom . import other", "package/tool.py")
    write(tmp_path, "print(__name__)", "package/other.py")
    both(tmp_path, "-m", "package", "--version")
    both(tmp_path, "-m", "package.tool", "a")
    write(tmp_path, "import sys; print(sys.argv, __name__, sys.path[0])", "folder/__main__.py")
    both(tmp_path, "folder", "b")


FAILURES = {
    "values": "raise ValueError('boom')",
    "files": "open('no such file')",
    "kinds": "len(3)",
    "imports": "import no_such_dependency",
    "syntax": "1 +",
    "exits": "import sys; sys.exit(7)",
}


def test_what_a_package_raises_when_it_is_imported_is_the_programs_own(tmp_path: Path) -> None:
    for package, code in FAILURES.items():
        write(tmp_path, code, f"{package}/__init__.py")
        write(tmp_path, "", f"{package}/tool.py")
    write(
        tmp_path,
        """
        import sys
        from torch.utils.data import DataLoader
        sys.path.insert(0, "mine")
        print(type(DataLoader([1])).__module__, sys.argv)
        """,
        "early/__init__.py",
    )
    write(tmp_path, "import sys; print(sys.path[0], sys.argv)", "early/tool.py")
    commands = [["-m", f"{package}.tool", "a"] for package in (*FAILURES, "early")]
    *failed, early, missing = [
        start(tmp_path, *OURS, *command) for command in (*commands, ["-m", "early.none"])
    ]
    for command, ours in zip(commands, failed, strict=False):
        plain = start(tmp_path, *PLAIN, *command)
        assert ours.returncode == plain.returncode, command
        said = [line for line in plain.stderr.decode().splitlines() if "frozen runpy" not in line]
        if command[1] == "syntax.tool":
            said.remove("Traceback (most recent call last):")
        assert ours.stderr.decode().splitlines() == [*said, NO_LOADER.strip()], command
    expected = f"antifreeze.loader ['-m', 'a']\nmine ['{tmp_path / 'early/tool.py'}', 'a']\n"
    assert early.stdout.decode() == expected  # its loaders are ours, its path stays
    assert missing.returncode == 2
    assert missing.stderr == b"antifreeze run: No module named early.none\n"


ENDS = [
    "sys.exit()",
    "sys.exit(3)",
    "sys.exit('gone wrong')",
    "sys.exit(True)",
    "raise SystemExit((1, 2))",
    "raise ValueError('no such value')",
    "outer()",
    "raise BrokenPipeError('not ours to catch')",
    "raise BaseException('odd')",
    "os._exit(5)",
    "os.kill(os.getpid(), signal.SIGTERM)",
    "os.kill(os.getpid(), signal.SIGKILL)",
    "os.kill(os.getpid(), signal.SIGINT); time.sleep(10)",
    "os.abort()",
    "sys.excepthook = lambda *e: print('hook', e[0], e[2].tb_frame.f_code.co_name); 1/0",
    "atexit.register(lambda: print(*(repr(getattr(sys, 'last_' + each, None))"
    " for each in ('type', 'value', 'exc')))); 1/0",
    "threading.Thread(target=lambda: (time.sleep(0.3), print('thread done'))).start(); 1 / 0",
    "raise ExceptionGroup('several', [OSError('a'), KeyError('b')])",
    "exec(compile('1 +', 'made-up', 'exec'))",
    "os.write(1, os.read(0, 9)); print(input(), sys.stdin.read())",
    "print('no newline', end='')",
    "this is no Python",
]
SAYS_NOTHING = ("os._exit", "TERM", "KILL", "abort", "no Python")
BEGIN = """
    import atexit, os, signal, sys, threading, time
    atexit.register(print, "at exit")
    def inner():
        try:
            raise OSError("the cause")
        except OSError as error:
            raise KeyError("nothing there") from error
    def outer():
        inner()
    print("begun", flush=True)
"""


def test_it_ends_as_under_python(tmp_path: Path) -> None:
    scripts = [f"end{number}.py" for number in range(len(ENDS))]
    for name, end in zip(scripts, ENDS, strict=True):
        write(tmp_path, textwrap.dedent(BEGIN) + end + "\n", name)
    given = b"a line\n" * 5
    for name, end in zip(scripts, ENDS, strict=True):
        done = start(tmp_path, *OURS, name, given=given)
        plain = start(tmp_path, *PLAIN, name, given=given)
        assert done.returncode == plain.returncode, end
        assert done.stdout == plain.stdout, end
        told = "" if any(word in end for word in SAYS_NOTHING) else NO_LOADER
        assert done.stderr.decode() == plain.stderr.decode() + told, end


def test_interrupted_from_outside_it_dies_of_that(tmp_path: Path) -> None:
    write(tmp_path, "import time\nprint('begun', flush=True)\ntime.sleep(100)\n")
    process = subprocess.Popen(
        [*OURS, "train.py"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path
    )
    assert process.stdout is not None and process.stdout.readline() == b"begun\n"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == -signal.SIGINT
    assert said.decode().startswith("Traceback (most recent call last):\n  File ")
    assert said.decode().endswith("KeyboardInterrupt\n" + NO_LOADER)
    assert said.count(b"File ") == 1


CLASSES = """
    import multiprocessing, pickle, sys
    import torch
    from torch.utils.data import DataLoader, Dataset
    class Point:
        def __init__(self, value):
            self.value = value
        def __eq__(self, other):
            return type(other) is Point and other.value == self.value
    class Points(Dataset):
        def __len__(self):
            return 8
        def __getitem__(self, index):
            return Point(index)
    def same(batch):
        return batch
    def answer(value):
        return Point(value.value + 1)
"""


def test_classes_of_the_script_are_pickled_and_found_in_other_processes(tmp_path: Path) -> None:
    write(
        tmp_path,
        textwrap.dedent(CLASSES)
        + textwrap.dedent(
            """
            if __name__ == "__main__":
                print(pickle.dumps(Point(3)), Point)
                for method in ("fork", "spawn", "forkserver"):
                    with multiprocessing.get_context(method).Pool(1) as pool:
                        print(method, pool.map(answer, [Point(1)]) == [Point(2)])
            """
        ),
    )
    both(tmp_path, "train.py")


@pytest.mark.parametrize("how", ["", "multiprocessing_context='spawn'", "threads"])
def test_every_loader_is_ours_wherever_its_workers_come_from(tmp_path: Path, how: str) -> None:
    threads, how = ("True", "") if how == "threads" else ("False", how)
    write(
        tmp_path,
        textwrap.dedent(CLASSES)
        + textwrap.dedent(
            f"""
            if __name__ == "__main__":
                if {threads}:  # a zygote of a clean process is better then
                    import ctypes, threading
                    busy = ctypes.CDLL(None).sleep  # who could tell what it holds?
                    threading.Thread(target=busy, args=(60,), daemon=True).start()
                loader = DataLoader(Points(), batch_size=4, num_workers=2, collate_fn=same, {how})
                points = [point for batch in loader for point in batch]
                print([point.value for point in points])
                print(all(type(point) is Point for point in points))
                print(type(loader).__module__, file=sys.stderr)
            """
        ),
    )
    done = both(tmp_path, "train.py", told=None)
    said = done.stderr.decode().splitlines()
    assert said[0] == "antifreeze.loader"
    assert said[1].startswith("antifreeze: DataLoader (train.py:"), said
    assert "the loop waited for data" in said[1]
    assert all(line.startswith("  to try: ") for line in said[2:]), said


def test_options_come_from_the_command_line_before_those_of_pyproject(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
        from torch.utils.data import DataLoader
        loader = DataLoader([1])
        print(loader.on_error, loader.sample_timeout, loader.fault_log, loader.worker_memory)
        """,
        "code/train.py",
    )

    (tmp_path / ".git").mkdir()  # one project, of several parts
    (tmp_path / "code/pyproject.toml").write_text("[tool.other]\nkey = 1\n")
    (tmp_path / "pyproject.toml").write_text(
        '[tool.antifreeze]\nsample-timeout = 60\nfault-log = "faults.jsonl"\n'
        'worker_memory = "500MB"\n'
    )
    write(tmp_path, (tmp_path / "code/train.py").read_text(), "elsewhere/train.py")
    (tmp_path / "elsewhere/pyproject.toml").write_text("[tool.antifreeze]\n")
    given = ["--sample-timeout=9", "--fault-log", "x.jsonl", "--worker-memory", "1.5GiB"]
    commands = [
        ["elsewhere/train.py"],
        ["code/train.py"],
        [*given, "code/train.py"],
        ["--sample-timeout", "none", "--on-error", "raise", "elsewhere/train.py"],
    ]
    done = [start(tmp_path, *OURS, *command) for command in commands]
    assert [each.stdout.decode() for each in done] == [
        "raise auto None auto\n",
        f"raise 60 {tmp_path / 'faults.jsonl'} 500000000.0\n",
        f"raise 9.0 {tmp_path / 'x.jsonl'} 1610612736.0\n",
        "raise None None auto\n",
    ]


REFUSED: list[tuple[list[str], str]] = [
    ([], "which script?"),
    (["missing.py"], "there is no script missing.py"),
    (["-m"], "which module?"),
    (["-m", "no_such_module"], "No module named no_such_module"),
    (["--on-error", "ignore", "train.py"], "on_error='ignore'"),
    (["--sample-timeout", "soon", "train.py"], "--sample-timeout takes SECONDS, auto, none"),
    (["--sample-timeout=-1", "train.py"], "positive number of seconds"),
    (["--quarantine", "no.json", "--on-error", "skip", "train.py"], "there is no such file"),
    (["--fault-log", "none/faults.jsonl", "train.py"], "/none does not exist; make it first"),
    (["--fault-log", "key", "train.py"], "that is a folder; name a file in it"),
    (
        ["--signal", "TERM", "train.py"],
        "--signal takes USR1, USR2, QUIT, RTMIN or none, not 'TERM'",
    ),
    (["--workers", "3", "train.py"], "unrecognized arguments: --workers"),
    (["--onerror", "skip", "train.py"], "--onerror skip (did you mean --on-error?)"),
    (["--workers", "3", "train.py"], "usage: antifreeze run [options] (script.py | -m module)"),
    (["--worker-memory", "much", "train.py"], "--worker-memory takes BYTES, 2GB, 1.5GiB, auto, no"),
    (["-x", "train.py"], "there is no option -x"),
    (["."], ". is a folder without a __main__.py; which script in it?"),
    (
        ["--on-error", "replace", "torchrun", "--nproc_per_node", "2", "train.py", "--lr", "1"],
        "round: torchrun --nproc_per_node 2 -m antifreeze run --on-error=replace train.py --lr 1\n",
    ),
    (["/usr/bin/torchrun", "--help"], "round: torchrun ... -m antifreeze run train.py\n"),
    (
        ["-m", "torch.distributed.run", "--standalone", "train.py"],
        "round: torchrun --standalone -m antifreeze run train.py\n",
    ),
    (["accelerate", "launch", "train.py"], "round: accelerate launch -m antifreeze run train.py\n"),
    (["key/train.py"], "there is no key 'colour' in [tool.antifreeze]; there are on-error, "),
    (["value/train.py"], "sample_timeout option should be"),
    (["broken/train.py"], "broken/pyproject.toml: "),
]
TABLES = {"key": "colour = 3", "value": "sample-timeout = [1]", "broken": "sample-timeout ="}


def test_what_cannot_be_run_is_said(tmp_path: Path) -> None:
    write(tmp_path, "print('never')")
    for folder, table in TABLES.items():
        write(tmp_path, "print('never')", f"{folder}/train.py")
        (tmp_path / folder / "pyproject.toml").write_text(f"[tool.antifreeze]\n{table}\n")
    for arguments, words in REFUSED:
        each = start(tmp_path, *OURS, *arguments)
        assert each.returncode == 2 and each.stdout == b"", each
        assert words in each.stderr.decode()
        assert "Traceback" not in each.stderr.decode()


def test_a_wrong_word_in_the_environment_is_said_before_the_script_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "print('ran')")
    monkeypatch.setenv("ANTIFREEZE_RANDOMNESS", "tosh")
    done = start(tmp_path, *OURS, "train.py")
    assert done.returncode == 2 and done.stdout == b""
    assert "randomness='tosh' (from ANTIFREEZE_RANDOMNESS)" in done.stderr.decode()
    assert start(tmp_path, *OURS, "--randomness", "torch", "train.py").stdout == b"ran\n"


def test_a_program_that_the_script_starts_as_a_command_is_not_followed(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
        from torch.utils.data import DataLoader
        print(type(DataLoader([1])).__module__, flush=True)
        """,
        "other.py",
    )
    write(
        tmp_path,
        """
        import subprocess, sys
        for words in ([], ["-m", "antifreeze", "run"]):
            subprocess.run([sys.executable, *words, "other.py"], check=True)
        """,
    )
    done = start(tmp_path, *OURS, "train.py")
    assert done.stdout == b"torch.utils.data.dataloader\nantifreeze.loader\n"
    assert done.stderr.decode() == NO_LOADER * 2  # of the one that was asked for, and the script's


def test_switched_off_it_runs_the_script_and_no_more(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
        from torch.utils.data import DataLoader
        loader = DataLoader([1, 2], num_workers=1)
        print(type(loader), type(iter(loader)))
        """,
    )
    plain = start(tmp_path, *PLAIN, "train.py")
    done = subprocess.run(
        [*OURS, "train.py"],
        capture_output=True,
        cwd=tmp_path,
        timeout=PATIENCE_S,
        env={**os.environ, "ANTIFREEZE": "off"},
    )
    assert (done.stdout, done.stderr, done.returncode) == (plain.stdout, b"", 0)


def test_two_ranks_of_torchrun_train_together(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
        import os
        import torch
        import torch.distributed as dist
        from torch.utils.data import DataLoader, DistributedSampler
        dist.init_process_group("gloo")
        data = list(range(8))
        loader = DataLoader(data, batch_size=2, sampler=DistributedSampler(data), num_workers=1)
        total = sum(batch.sum() for batch in loader)
        dist.all_reduce(total)
        with open(f"rank{dist.get_rank()}", "w") as file:
            file.write(f"{int(total)} {type(loader).__module__}")
        dist.destroy_process_group()
        """,
    )
    done = start(
        tmp_path,
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
        *("-m", "antifreeze", "run", "--sample-timeout", "60", "train.py"),
    )
    assert done.returncode == 0, done.stderr.decode()
    for rank in (0, 1):
        assert (tmp_path / f"rank{rank}").read_text() == "28 antifreeze.loader"
        assert f"antifreeze, rank {rank}: DataLoader (train.py:8)" in done.stderr.decode()


def test_processes_that_the_script_spawns_load_with_it_too(tmp_path: Path) -> None:
    """As scripts do that start their own ranks: they use torch where the script imports it."""
    write(
        tmp_path,
        """
        import torch.multiprocessing as mp
        from torch.utils.data import DataLoader
        def train(rank):
            loader = DataLoader([rank], num_workers=1)
            print(type(loader).__module__, loader.sample_timeout, [int(b) for b in loader])
        if __name__ == "__main__":
            mp.spawn(train, nprocs=1)
        """,
    )
    done = start(tmp_path, *OURS, "--sample-timeout", "55", "train.py")
    assert done.stdout == b"antifreeze.loader 55.0 [0]\n", done.stderr.decode()


def test_processes_that_import_torch_late_or_never_are_no_exception(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
        import multiprocessing, sys
        def train(deep):
            if deep:
                spawned = multiprocessing.get_context("spawn")
                process = spawned.Process(target=train, args=[deep - 1])
                process.start()
                process.join()
                print([name for name in sys.modules if name.startswith("torch")], flush=True)
                return
            from torch.utils.data import DataLoader
            loader = DataLoader([3], num_workers=1)
            print(type(loader).__module__, loader.sample_timeout, flush=True)
        if __name__ == "__main__":
            train(2)
        """,
    )
    done = start(tmp_path, *OURS, "--sample-timeout", "55", "train.py")
    assert done.stdout == b"antifreeze.loader 55.0\n[]\n[]\n", done.stderr.decode()


def test_torch_is_imported_by_the_script_and_nobody_else(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
        import sys
        if "--help" in sys.argv:
            sys.exit(f"{[name for name in sys.modules if name.startswith(('torch', 'numpy'))]}")
        from torch.utils.data import DataLoader
        from importlib.machinery import SourceFileLoader
        import torch
        loader = torch.__spec__.loader
        print(type(DataLoader([1])).__module__, type(loader) is SourceFileLoader)
        print([each for each in sys.meta_path if "waits for torch" in repr(each)])
        """,
    )
    done = start(tmp_path, *OURS, "train.py", "--help")
    assert done.stderr.decode() == "[]\n" + NO_LOADER
    done = start(tmp_path, *OURS, "train.py")
    assert done.stdout == b"antifreeze.loader True\n[]\n", done.stderr.decode()


@pytest.mark.parametrize(
    "first",
    some_of(
        ["import antifreeze", "from antifreeze import DataLoader", "import antifreeze.loader"], 2
    ),
)
def test_a_script_that_uses_our_loader_already_runs_as_it_is(tmp_path: Path, first: str) -> None:
    write(
        tmp_path,
        f"""
        {first}
        import antifreeze
        import torch.utils.data
        for kind in (antifreeze.DataLoader, torch.utils.data.DataLoader):
            loader = kind(range(4), batch_size=2)
            print(type(loader).__module__, [each.tolist() for each in loader])
        """,
    )
    done = start(tmp_path, *OURS, "train.py")
    assert done.stdout == b"antifreeze.loader [[0, 1], [2, 3]]\n" * 2, done.stderr
    assert done.returncode == 0


def test_a_script_whose_torch_cannot_be_imported_says_so_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH")  # what there is for quick tests would be in the traceback
    write(tmp_path, "from . import inner", "torch/__init__.py")
    for error in ("ImportError", "OSError"):
        write(tmp_path, f"raise {error}('libcudart is missing')", "torch/inner.py")
        write(tmp_path, "def begin():\n    import torch\nbegin()")
        both(tmp_path, "train.py")


def test_help_and_version_are_the_commands_own(tmp_path: Path) -> None:
    done = start(tmp_path, *OURS, "--help")
    assert done.returncode == 0
    for words in (b"--on-error", b"--quarantine", b"-m module", b"SIGUSR1", b"--signal"):
        assert words in done.stdout
    done = start(tmp_path, *OURS[:-1], "--version")
    assert done.stdout.decode() == f"antifreeze {_version.VERSION}\n"
