"""Our own loader is asked from outside: neither side harms the other, whatever it does."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from antifreeze._answering import Desk
from antifreeze._asked import address, ask
from antifreeze.cli.attach import _safe
from antifreeze.doctor.attach.diagnose import diagnose
from antifreeze.doctor.attach.looking import Manner, look_at

from ..rogues.programs import line, program
from .test_endings import _case
from .ward import blindness


def test_who_hangs_up_does_not_end_a_program_that_dies_of_sigpipe() -> None:
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        desk = Desk()
        asker = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        asker.connect(address(os.getpid()))
        asker.close()
        desk.serve()
        os._exit(7)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7


def test_who_answers_byte_by_byte_is_heard_no_longer_than_it_was_asked_for() -> None:
    pid = os.getpid()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as desk:
        desk.bind(address(pid))
        desk.listen(1)

        def dribble() -> None:
            asker, _ = desk.accept()
            with asker:
                for _ in range(40):
                    try:
                        asker.send(b"[", socket.MSG_NOSIGNAL)
                    except OSError:
                        return
                    time.sleep(0.1)

        thread = threading.Thread(target=dribble)
        thread.start()
        began = time.monotonic()
        said = ask(pid, 0.5)
        took = time.monotonic() - began
        thread.join(30)
    assert said is not None and "no answer" in said["error"]
    assert took < 5 * 0.5


@pytest.mark.parametrize(
    "said", [{"loaders": ["x"]}, {"loaders": 3}, {"loaders": [{"workers": 1}]}]
)
def test_an_answer_that_is_rubbish_does_not_cost_the_diagnosis(said: object) -> None:
    case = _case("sample_in_our_worker")
    answer = diagnose(replace(case, told={str(case.asked): said}))[0]
    assert answer.findings and answer.told[-1:] == ("its loader's answer is not as it should be",)


def test_words_of_another_program_mean_nothing_to_a_terminal() -> None:
    assert _safe("a\x1b[2Jb\x1b]0;title\x07c\nd") == "a?[2Jb?]0;title?c?d"


OURS = """
    if {clean}:
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    iterator = iter(DataLoader(Numbers(1000), num_workers=2))
    next(iterator)
    say(iterator._workers[0].pid)
    time.sleep(60)
"""


@pytest.mark.parametrize("clean", [False, True])
def test_a_worker_of_ours_stands_for_its_program(clean: bool, tmp_path: Path) -> None:
    """One that was forked, and one that comes from a clean process."""
    if reason := blindness():
        pytest.skip(f"stacks cannot be taken here: {reason}")
    with program(tmp_path, OURS.format(clean=clean)) as process:
        case = look_at(int(line(process)), Manner(between_s=0.1, patience_s=0.0))
    assert process.pid in {each.pid for each in case.looks[-1].processes}
    assert [each.pid for each in diagnose(case)] == [process.pid]
