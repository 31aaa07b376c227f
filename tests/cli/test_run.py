"""`antifreeze run`, beside `python`: an unmodified script behaves the same, with our loaders."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from antifreeze import _version

PLAIN = [sys.executable]
OURS = [sys.executable, "-m", "antifreeze", "run"]
NO_LOADER = "antifreeze: this script looped over no DataLoader.\n"


def write(folder: Path, code: str, name: str = "train.py") -> Path:
    script = folder / name
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(textwrap.dedent(code))
    return script


def start(folder: Path, *command: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        command, capture_output=True, cwd=folder, timeout=150, input=given, env=dict(os.environ)
    )


def both(
    folder: Path, *arguments: str, given: bytes = b"", told: str | None = NO_LOADER
) -> subprocess.CompletedProcess[bytes]:
    """Run both ways; expect the same, but for what is told at the end."""
    plain = start(folder, *PLAIN, *arguments, given=given)
    ours = start(folder, *OURS, *arguments, given=given)
    assert ours.returncode == plain.returncode, ours.stderr.decode()
    assert ours.stdout == plain.stdout
    if told is not None:
        assert ours.stderr.decode() == plain.stderr.decode() + told
    return ours


STAND = """
    import json, os, sys
    from antifreeze import cli
    commands, given = json.loads(sys.argv[1])
    for number, command in enumerate(commands):
        if os.fork() == 0:
            for name, descriptor in (("in", 0), ("out", 1), ("err", 2)):
                flags = os.O_RDWR | os.O_CREAT
                os.dup2(os.open(f"{number}.{name}", flags, 0o600), descriptor)
            os.write(0, given.encode())
            os.lseek(0, 0, os.SEEK_SET)
            sys.argv[:] = ["antifreeze", *command]
            sys.exit(cli.main())
        print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""


def at_once(
    folder: Path, commands: list[list[str]], given: str = ""
) -> list[subprocess.CompletedProcess[bytes]]:
    """Have many commands done by forks of one process: each would need seconds to import torch."""
    stand = write(folder, STAND, "stand/stand.py")
    done = start(folder, *PLAIN, str(stand), json.dumps([commands, given]))
    codes = [int(code) for code in done.stdout.split()]
    assert len(codes) == len(commands), done.stderr.decode()
    return [
        subprocess.CompletedProcess(
            commands[number],
            code,
            (folder / f"{number}.out").read_bytes(),
            (folder / f"{number}.err").read_bytes(),
        )
        for number, code in enumerate(codes)
    ]


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
    ours = at_once(tmp_path, [["run", "--", path] for path in paths])
    for path, each in zip(paths, ours, strict=True):
        plain = start(tmp_path, *PLAIN, path)
        assert each.stdout == plain.stdout


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
    *failed, early, missing = at_once(
        tmp_path, [*(["run", *command] for command in commands), ["run", "-m", "early.none"]]
    )
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
    given = "a line\n" * 5
    ours = at_once(tmp_path, [["run", name] for name in scripts], given)
    for name, end, done in zip(scripts, ENDS, ours, strict=True):
        (tmp_path / "given").write_text(given)
        with open(tmp_path / "given") as stdin:
            plain = subprocess.run(
                [*PLAIN, name], capture_output=True, cwd=tmp_path, timeout=100, stdin=stdin
            )
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
    _, said = process.communicate(timeout=100)
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
                if {threads}:  # a template of a clean process is better then
                    import threading
                    ends = threading.Event()
                    threading.Thread(target=ends.wait, daemon=True).start()
                loader = DataLoader(Points(), batch_size=4, num_workers=2, collate_fn=same, {how})
                print([point.value for batch in loader for point in batch])
                print(all(type(point) is Point for batch in loader for point in batch))
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

    (tmp_path / "code/pyproject.toml").write_text("[tool.other]\nkey = 1\n")
    (tmp_path / "pyproject.toml").write_text(
        '[tool.antifreeze]\nsample-timeout = 60\nfault-log = "faults.jsonl"\n'
        'worker_memory = "none"\n'
    )
    write(tmp_path, (tmp_path / "code/train.py").read_text(), "elsewhere/train.py")
    (tmp_path / "elsewhere/pyproject.toml").write_text("[tool.antifreeze]\n")
    given = ["--sample-timeout=9", "--fault-log", "x.jsonl", "--worker-memory", "2e9"]
    commands = [
        ["run", "elsewhere/train.py"],
        ["run", "code/train.py"],
        ["run", *given, "code/train.py"],
        ["run", "--sample-timeout", "none", "--on-error", "raise", "elsewhere/train.py"],
    ]
    assert [each.stdout.decode() for each in at_once(tmp_path, commands)] == [
        "raise auto None auto\n",
        f"raise 60 {tmp_path / 'faults.jsonl'} None\n",
        f"raise 9.0 {tmp_path / 'x.jsonl'} 2000000000.0\n",
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
    (["--quarantine", "no.json", "--on-error", "skip", "train.py"], "no.json"),
    (["--workers", "3", "train.py"], "unrecognized arguments: --workers"),
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
    done = at_once(tmp_path, [["run", *arguments] for arguments, _ in REFUSED])
    for (_, words), each in zip(REFUSED, done, strict=True):
        assert each.returncode == 2 and each.stdout == b"", each
        assert words in each.stderr.decode()
        assert "Traceback" not in each.stderr.decode()


def test_faults_are_told_at_the_end_after_what_the_script_does_then(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
        import atexit, sys
        from torch.utils.data import DataLoader, Dataset
        class Photos(Dataset):
            def __len__(self):
                return 10
            def __getitem__(self, index):
                if index == 3:
                    raise OSError("truncated")
                return index
        def train():
            for batch in DataLoader(Photos(), batch_size=5):
                print(batch.tolist())
        train()  # the loader is gone by the end
        atexit.register(print, "the script's last word", file=sys.stderr)
        """,
    )
    done = start(tmp_path, *OURS, "--on-error", "replace", "train.py")
    assert done.returncode == 0 and done.stdout == b"[0, 1, 2, 4, 4]\n[5, 6, 7, 8, 9]\n"
    said = done.stderr.decode()
    last = said.partition("the script's last word\n")[2]
    assert last.startswith("antifreeze: DataLoader (train.py:"), said
    assert last.endswith("  exception of sample 3, replaced: OSError: truncated\n"), said


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
    out, said = process.communicate(timeout=100)
    assert process.returncode == 0 and out == ("3\nown [1]\n" if own else "3\nown []\n")
    assert "antifreeze: DataLoader (train.py:" in said


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
        timeout=100,
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


def test_help_and_version_are_the_commands_own(tmp_path: Path) -> None:
    done = start(tmp_path, *OURS, "--help")
    assert done.returncode == 0
    for words in (b"--on-error", b"--sample-timeout", b"--quarantine", b"-m module", b"SIGUSR1"):
        assert words in done.stdout
    done = start(tmp_path, *OURS[:-1], "--version")
    assert done.stdout.decode() == f"antifreeze {_version.VERSION}\n"
