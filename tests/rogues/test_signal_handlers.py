"""Signal handlers of the program: workers have those that torch's have, but for a short list."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from antifreeze._worker.signal_handlers import CRASHES, LEFT_TO_MAIN

from .programs import finish, program

TABLES = """
    import json

    def made_for(number):
        def handler(received, frame):
            pass
        handler.__name__ = f"of {number}"
        return handler

    def table():
        found = {int(each): signal.getsignal(each) for each in signal.valid_signals()}
        return {number: getattr(each, "__name__", repr(each)) for number, each in found.items()}

    class Tables(Numbers):
        dies_at = "nothing"

        def __getitem__(self, index):
            if not os.path.exists(self.dies_at):
                open(self.dies_at, "x").close()
                os.kill(os.getpid(), signal.SIGKILL)
            return json.dumps(table())

    def first(kind, dataset, **more):
        (batch,) = kind(dataset, batch_size=None, num_workers=1, **more)
        say(batch)

    fixed = (signal.SIGKILL, signal.SIGSTOP)
    for number in sorted(signal.valid_signals() - set(fixed)):
        if mode == "handled":
            signal.signal(number, made_for(int(number)))
        elif mode == "ignored" and number != signal.SIGCHLD:
            signal.signal(number, signal.SIG_IGN)

    dataset = Tables(1)
    dataset.dies_at = sys.argv[0]
    first(torch.utils.data.DataLoader, dataset)
    first(DataLoader, dataset)
    dataset.dies_at += ".died"
    first(DataLoader, dataset)  # this one is forked by the zygote
    first(DataLoader, dataset, persistent_workers=True)
"""
OTHERWISE = LEFT_TO_MAIN | CRASHES
DEFAULT = repr(signal.SIG_DFL)


def tables(folder: Path, mode: str) -> tuple[dict[str, str], ...]:
    """Return the handlers in a worker of torch's; then those in workers of ours."""
    with program(folder, f"    mode = {mode!r}\n{TABLES}") as process:
        code, out, err = finish(process)
    assert code == 0, err
    theirs, *ours = map(json.loads, out.splitlines())
    assert len(ours) == 3
    assert ours[0] == ours[1] == ours[2]
    return theirs, ours[0]


def test_workers_have_the_handlers_that_workers_of_torch_have(tmp_path: Path) -> None:
    theirs, ours = tables(tmp_path, "handled")
    different = {int(number) for number, name in theirs.items() if ours[number] != name}
    assert different == OTHERWISE
    assert all(ours[str(int(each))] == DEFAULT for each in OTHERWISE - {signal.SIGINT})
    assert ours[str(int(signal.SIGALRM))] == f"of {int(signal.SIGALRM)}"


def test_what_the_program_ignores_is_ignored_in_workers(tmp_path: Path) -> None:
    theirs, ours = tables(tmp_path, "ignored")
    different = {int(number) for number, name in theirs.items() if ours[number] != name}
    assert different == {signal.SIGINT, signal.SIGTERM}
    assert theirs[str(int(signal.SIGUSR1))] == repr(signal.SIG_IGN)


TIMED = """
    import logging

    class TooSlow(Exception):
        pass

    def on_alarm(number, frame):
        raise TooSlow

    signal.signal(signal.SIGALRM, on_alarm)

    class Timed(Numbers):
        def __getitem__(self, index):
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            try:
                time.sleep(60 if index == 1 else 0)
            except TooSlow:
                return -1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            return index

    def rows(dataset, **more):
        say([int(each) for each in DataLoader(dataset, batch_size=None, num_workers=1, **more)])

    rows(Timed(4))
    held = threading.Lock()

    def busy():
        with held:
            while True:
                sum(range(99))

    threading.Thread(target=busy, daemon=True).start()
    logging.basicConfig(stream=sys.stdout, format="%(message)s")
    logging.getLogger("antifreeze").setLevel(logging.INFO)
    dataset = Timed(4)
    dataset.lock = held
    rows(dataset)
    rows(dataset)
    os._exit(0)
"""


def test_a_time_limit_by_an_alarm_holds_in_every_worker(tmp_path: Path) -> None:
    with program(tmp_path, TIMED) as process:
        code, out, err = finish(process)
    assert (code, err) == (0, "")
    assert [line for line in out.splitlines() if line.startswith("[")] == ["[0, -1, 2, 3]"] * 3
    assert out.count("workers start from a clean process") == 1


TO_PARENT = """
    seen = []
    signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))

    class Calls(Numbers):
        def __getitem__(self, index):
            os.kill(os.getppid(), signal.SIGUSR1)
            time.sleep(0.05)
            return index

    print(len(list(DataLoader(Calls(8), num_workers=1))), len(seen), flush=True)
"""


def test_a_signal_that_a_dataset_sends_to_its_parent_reaches_the_program(tmp_path: Path) -> None:
    with program(tmp_path, TO_PARENT) as process:
        code, out, err = finish(process)
    assert (code, err) == (0, "")
    samples, signals = out.split()
    assert samples == "8"
    assert 1 <= int(signals) <= 8  # two that come together count once
