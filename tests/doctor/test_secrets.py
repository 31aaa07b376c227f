"""What is written down of a program holds no secrets."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from antifreeze.cli import main
from antifreeze.doctor.attach.analyse import process_roles
from antifreeze.doctor.attach.case_redaction import without_names
from antifreeze.doctor.attach.facts import (
    Case,
    Descriptor,
    FileLock,
    Look,
    Machine,
    Process,
    Thread,
)
from antifreeze.doctor.attach.gather import collect, proc
from antifreeze.doctor.attach.gather.proc import without_secrets
from antifreeze.doctor.attach.gather.socket_peers import Sockets

from ..patience import PATIENCE_S
from .patient_programs import answer_to, named

CASES = Path(__file__).parent / "cases"
SPAWN = "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=8, pipe_handle=20)"
TRACKER = "from multiprocessing.resource_tracker import main;main(7)"


@pytest.mark.parametrize(
    ("command", "kept"),
    [
        ("python train.py --token=abc --lr=0.1", "python train.py --token=*** --lr=***"),
        ("python train.py --api-key abc --lr 1", "python train.py --api-key *** --lr ***"),
        ("python train.py --wandb abc", "python train.py --wandb ***"),
        ("python train.py abc user.key=abc", "python train.py *** ***"),
        ("python -u -X dev train.py -c abc", "python -u -X dev train.py -c ***"),
        ("python -m train --epochs 3", "python -m train --epochs ***"),
        ("python -mtrain abc", "python -mtrain ***"),
        ("/venv/bin/python3.12 -Bum train abc", "/venv/bin/python3.12 -Bum train ***"),
        ("python -c login('abc') abc", "python -c *** ***"),
        ("python -uc login('abc')", "python -uc ***"),
        ("python -clogin('abc')", "python -c***"),
        ("python -W ignore -X pycache_prefix=abc", "python -W ignore -X pycache_prefix=***"),
        ("python --check-hash-based-pycs default x.py", None),
        ("bash -lc curl|abc", "bash -lc ***"),
        ("bash run.sh abc", "bash run.sh ***"),
        ("env WANDB_API_KEY=abc python x.py", "env *** *** ***"),
        ("mysql -pabc -u me", "mysql -p*** -u ***"),
        ("git clone https://me:abc@host/data", "git *** ***"),
        ("python", "python"),
        ("", ""),
    ],
)
def test_a_command_is_kept_without_its_secrets(command: str, kept: str | None) -> None:
    found = " ".join(without_secrets(tuple(command.split(" "))))
    assert "abc" not in found
    if kept is not None:
        assert found == kept


def test_a_title_that_a_program_has_given_itself_is_kept_without_secrets() -> None:
    assert without_secrets(("ray::train --token abc",)) == ("ray::train --token ***",)


@pytest.mark.parametrize("code", [SPAWN, TRACKER])
def test_how_multiprocessing_starts_a_process_is_kept(code: str) -> None:
    command = ("python", "-B", "-c", code, "--multiprocessing-fork")
    assert without_secrets(command) == command


@pytest.mark.parametrize("name", ["spawn", "forkserver", "resource_tracker"])
def test_of_other_code_of_multiprocessing_the_name_is_kept(name: str) -> None:
    code = f"from multiprocessing.{name} import main; main(3, ['/home/abc'], key='abc')"
    assert without_secrets(("python", "-c", code)) == ("python", "-c", f"multiprocessing.{name}")


@pytest.mark.parametrize("name", process_roles.LAUNCHERS)
@pytest.mark.parametrize("before", [(), ("python",), ("python", "-m"), ("python", "conda", "run")])
def test_a_launcher_is_one_without_its_arguments_too(name: str, before: tuple[str, ...]) -> None:
    command = (*before, name, "--nproc-per-node", "2", "train.py", "abc")
    kept = without_secrets(command)
    assert process_roles.is_launcher(kept)
    assert "abc" not in " ".join(kept)


@pytest.mark.parametrize("path", sorted(CASES.glob("*.json")), ids=lambda path: path.stem)
def test_a_case_without_arguments_gets_the_same_answer(path: Path) -> None:
    case = Case.from_json(path.read_text())
    looks = tuple(
        replace(look, processes=tuple(_hidden(each) for each in look.processes))
        for look in case.looks
    )
    assert named(answer_to(replace(case, looks=looks))) == named(answer_to(case))


def _hidden(process: Process) -> Process:
    return replace(process, command=without_secrets(process.command))


@pytest.mark.parametrize("path", sorted(CASES.glob("*.json")), ids=lambda path: path.stem)
def test_a_case_without_names_of_files_gets_the_same_answer(path: Path) -> None:
    case = Case.from_json(path.read_text())
    assert named(answer_to(without_names(case))) == named(answer_to(case))


def test_a_case_without_names_of_files_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTIFREEZE_REDACT", "1")
    thread = Thread(7, opens="/data/secret.jpg", lock_file="/mnt/nfs/secret.lock [5]")
    targets = ("/data/secret.jpg", "/mnt/nfs/secret.lock", "/dev/null", "pipe:[7]")
    opened = tuple(Descriptor(number, each) for number, each in enumerate(targets))
    process = Process(7, 1, threads=(thread,), descriptors=opened)
    machine = Machine(network_mounts=("/mnt/nfs (nfs4)",))
    look = Look(0.0, (process,), machine, (FileLock("FLOCK", "/mnt/nfs/secret.lock", 8),))
    told = {"loaders": [{"sentence": "sample '/data/secret.jpg' took 3 s"}]}
    found = without_names(Case(7, (look, look), told=told))
    assert "secret" not in found.to_json()
    (hidden,) = found.looks[0].processes
    names = [each.target for each in hidden.descriptors]
    assert names == ["/<file 2>", "/mnt/nfs/<file 1>.lock", "/dev/null", "pipe:[7]"]
    assert hidden.threads[0].opens == names[0]
    assert hidden.threads[0].lock_file == f"{names[1]} [5]"
    assert found.looks[0] == found.looks[1]


def test_a_case_is_saved_without_names_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Process(7, 1, descriptors=(Descriptor(3, "/data/secret.jpg"),))
    case = Case(7, (Look(0.0, (process,)), Look(1.0, (process,))))
    monkeypatch.setattr(collect, "look_at", lambda pid, manner: case)
    for value, hidden in (("1", True), ("0", False)):
        monkeypatch.setenv("ANTIFREEZE_REDACT", value)
        saved = tmp_path / f"case{value}.json"
        main(["attach", "7", "--save", str(saved)])
        assert ("secret" not in saved.read_text()) == hidden


def test_commands_that_differ_in_what_is_hidden_differ_still() -> None:
    code = "input()"
    started = [
        subprocess.Popen([sys.executable, "-c", code, word], stdin=subprocess.PIPE)
        for word in ("serve-abc", "train-abc", "train-abc")
    ]
    try:
        commands = [_seen(each.pid).command for each in started]
    finally:
        for each in started:
            each.communicate(b"\n", timeout=PATIENCE_S)
    assert "abc" not in str(commands)
    assert commands[0] != commands[1] == commands[2]


def _seen(pid: int) -> Process:
    found = proc.process(pid, Sockets(pid))
    assert found is not None
    return found
