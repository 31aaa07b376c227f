"""`loader.progress()`: the same batches, and how it goes, wherever it is shown."""

from __future__ import annotations

import gc
import io
import os
import re
import select
import subprocess
import sys
import textwrap
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from torch.utils.data import IterableDataset

from antifreeze import DataLoader
from antifreeze._reporting.progress.bars import bar_line
from antifreeze._reporting.progress.displays import Shown
from antifreeze._reporting.progress.numbers import Figures, line
from antifreeze.errors import WorkerCrashed
from antifreeze.testing import SimulatedLoader, World

from ..patience import PATIENCE_S
from .screen import on_terminal, open_terminal

NUMBERS = list(range(40))
CLASSES = """
    import sys, time
    from antifreeze import DataLoader

    class Numbers:
        def __len__(self):
            return 60
        def __getitem__(self, index):
            return index
"""


def figures(**changes: Any) -> Figures:
    usual: dict[str, Any] = {"title": "epoch 3", "done": 120, "total": 1563, "elapsed_s": 18.64}
    usual |= {"left_s": 201.0, "samples": 7680, "wait_share": 0.12, "faults": 0}
    return Figures(**{**usual, **changes})


# ---- what is said --------------------------------------------------------------------------------


def test_a_line_of_a_log_has_all_figures() -> None:
    said = line(figures(), over=False)
    assert said == "epoch 3: 120 of 1,563 batches (7 %), 412 samples/s, waited 12 %, 3:21 left"


def test_the_last_line_says_how_long_it_took_and_what_went_wrong() -> None:
    over = figures(done=1563, samples=100_000, elapsed_s=3725.0, faults=1, left_s=0.0)
    said = line(over, over=True)
    assert said == "epoch 3: 1,563 batches in 1:02:05, 26.8 samples/s, waited 12 %, 1 fault"


def test_an_epoch_that_was_left_early_says_how_far_it_came() -> None:
    said = line(figures(wait_share=0.001, faults=3), over=True)
    assert (
        said == "epoch 3: 120 of 1,563 batches in 0:18, 412 samples/s, waited under 1 %, 3 faults"
    )


def test_what_is_not_known_is_not_said() -> None:
    unknown = figures(title="", total=None, left_s=None, samples=None, wait_share=None)
    assert line(unknown, over=False) == "120 batches in 0:18, 6.44 batches/s"


@pytest.mark.parametrize("width", [10, 40, 60, 80, 200])
def test_a_bar_fits_in_its_line(width: int) -> None:
    text = bar_line(figures(title="an epoch of some name", faults=12), width, over=False)
    assert text.cell_len < width
    assert ("━" in text.plain) == (width == 200)


def test_a_terminal_without_unicode_gets_none() -> None:
    text = bar_line(figures(), 100, over=False, plain=True).plain
    assert text.isascii() and "##--" in text


def test_a_notebook_is_given_text_and_html_of_harmless_titles() -> None:
    shown = Shown(figures(title="<b>", faults=2), over=False)
    assert repr(shown).startswith("<b>: 120 of 1,563")
    html = shown._repr_html_()
    assert "&lt;b&gt;: 120" in html and '<progress value="120" max="1563">' in html
    assert html.endswith('<b style="color:#c00">2 faults</b></div>')


# ---- the loop ------------------------------------------------------------------------------------


def test_batches_pass_unchanged_and_in_order_epoch_after_epoch() -> None:
    loader = DataLoader(NUMBERS, batch_size=4, num_workers=2)
    log = io.StringIO()
    shown = loader.progress("\nepoch", file=log)
    assert len(shown) == 10
    for _ in range(2):
        got = [(i, batch.tolist()) for i, batch in enumerate(shown)]
        assert got == [(i, NUMBERS[4 * i : 4 * i + 4]) for i in range(10)]
    lines = log.getvalue().splitlines()
    assert len(lines) == 2
    for text in lines:
        pattern = r"epoch: 10 batches in 0:0\d, [\d,.]+ samples/s, waited (under )?\d+ %"
        assert re.fullmatch(pattern, text), text


def test_waiting_faults_and_samples_are_those_of_this_epoch() -> None:
    loader = DataLoader(Flawed(), batch_size=4, num_workers=1, on_error="replace")
    log = io.StringIO()
    for _ in loader:
        pass
    before = loader.stats()
    for _ in loader.progress(file=log):
        time.sleep(0.01)
    after = loader.stats()
    waited = (after["waited_s"] - before["waited_s"]) / (after["seconds"] - before["seconds"])
    assert f"waited {100 * waited:.0f} %, 1 fault\n" in log.getvalue()
    assert after["faults"] == 2


class Flawed:
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> int:
        if index == 13:
            raise ValueError("the sensor was off")
        if index == 31:
            time.sleep(0.2)
        return index


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(10))


class LyingStream(Stream):
    def __len__(self) -> int:
        return 6


def test_of_a_stream_batches_are_counted() -> None:
    log = io.StringIO()
    shown = DataLoader(Stream(), batch_size=4).progress("stream", file=log)
    assert [batch.tolist() for batch in shown] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert log.getvalue().startswith("stream: 3 batches in 0:00, ")
    with pytest.raises(TypeError, match="nobody knows"):
        len(shown)


def test_a_stream_is_not_held_to_the_length_it_says() -> None:
    """`len(loader)` would have torch warn of each batch beyond it."""
    log = io.StringIO()
    loader = DataLoader(LyingStream(), batch_size=4)
    assert len(loader.progress()) == 2
    assert len(list(iter(loader.progress(file=log)))) == 3
    assert loader._IterableDataset_len_called is None
    assert log.getvalue().startswith("3 batches in ")


class Poisoned:
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> int:
        if index == 13:
            os._exit(3)
        return index


def test_the_epoch_can_go_on_after_an_error() -> None:
    log = io.StringIO()
    loader = DataLoader(Poisoned(), batch_size=4, num_workers=2, sample_timeout=None)
    iterator = iter(loader.progress(file=log))
    got, crashes = 0, 0
    while True:
        try:
            next(iterator)
            got += 1
        except StopIteration:
            break
        except WorkerCrashed:
            crashes += 1
    assert (got, crashes) == (9, 1)
    assert [text.split(" in ")[0] for text in log.getvalue().splitlines()] == [
        "3 of 10 batches",
        "9 of 10 batches",
    ]


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("way", ["break", "exception", "left"])
def test_workers_go_as_without_it(way: str, persistent: bool) -> None:
    others = _children()
    log = io.StringIO()
    loader = DataLoader(NUMBERS, batch_size=4, num_workers=2, persistent_workers=persistent)
    if way == "break":
        for _ in loader.progress(file=log):
            break
    elif way == "exception":
        try:
            for _ in loader.progress(file=log):
                raise KeyError
        except KeyError:
            pass
    else:
        iterator = iter(loader.progress(file=log))
        next(iterator)
        del iterator
    assert log.getvalue().startswith("1 of 10 batches in ")
    if persistent:
        assert len(list(loader)) == 10
        del loader
    assert _workers_are_gone(others)


def _children() -> set[int]:
    found = psutil.Process().children(recursive=True)
    return {each.pid for each in found if each.status() != psutil.STATUS_ZOMBIE}


def _workers_are_gone(others: set[int]) -> bool:
    """Wait until there are no children but those of earlier tests: a clean process stays."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        if _children() <= others:
            return True
        time.sleep(0.02)
    return False


def test_no_batch_is_kept() -> None:
    iterator = iter(DataLoader(NUMBERS, batch_size=4).progress(file=io.StringIO()))
    batch = next(iterator)
    last = weakref.ref(batch)
    del batch
    assert last() is None
    assert len(list(iterator)) == 9


def test_a_second_loop_over_persistent_workers_is_warned_of() -> None:
    loader = DataLoader(NUMBERS, batch_size=4, num_workers=1, persistent_workers=True)
    with pytest.warns(UserWarning, match="two loops share this loader"):
        got = [len(list(loader)) for _ in loader.progress(file=io.StringIO())]
    assert got == [10]  # as in torch: both loops end together
    loader._iterator = None


def test_a_step_costs_next_to_nothing() -> None:
    """The promise is 2 us; the bound is five times that."""
    loader = DataLoader(range(20_000), batch_size=None)

    def cost(batches: Any) -> float:
        began = time.process_time()
        for _ in batches:
            pass
        return time.process_time() - began

    with open(os.devnull, "w") as log:
        taken = [(cost(loader), cost(loader.progress(file=log))) for _ in range(3)]
    plain, shown = (min(each) for each in zip(*taken, strict=True))
    assert (shown - plain) / 20_000 < 10e-6


# ---- logs ----------------------------------------------------------------------------------------


def test_a_log_gets_a_line_soon_then_one_a_minute_and_one_at_the_end() -> None:
    world = World(load_s=lambda seat, ticket: 1.0)
    loader = SimulatedLoader(range(400), batch_size=2, num_workers=1, world=world)
    log, at = io.StringIO(), []
    for _ in loader.progress("epoch 3", file=log):
        while len(at) < log.getvalue().count("\n"):
            at.append(round(world.clock.now()))
    assert at == [10, 70, 130, 190]
    lines = log.getvalue().splitlines()
    assert lines[0].startswith("epoch 3: 10 of 200 batches (5 %), 1 batches/s, waited 100 %, 3:1")
    assert len(lines) == 5
    assert lines[-1] == "epoch 3: 200 batches in 3:20, 1 batches/s, waited 100 %"


def test_a_log_on_stderr_needs_no_rich() -> None:
    code = """
        import sys
        from antifreeze import DataLoader
        for batch in DataLoader(list(range(8)), 4).progress("epoch 1"):
            print(batch)
        assert "rich" not in sys.modules
        sys.stderr = None
        assert len(list(iter(DataLoader(list(range(8)), 4).progress()))) == 2
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("epoch 1: 2 batches in 0:00, ")
    assert done.stdout == "tensor([0, 1, 2, 3])\ntensor([4, 5, 6, 7])\n"


def test_a_log_that_was_closed_does_not_end_the_epoch(tmp_path: Path) -> None:
    log = open(tmp_path / "log", "w")  # noqa: SIM115
    got = []
    for batch in DataLoader(NUMBERS, batch_size=4).progress(file=log):
        log.close()
        got.append(batch)
    assert len(got) == 10


def test_of_several_ranks_the_first_one_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.StringIO()
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank, lines in (("1", 0), ("0", 1)):
        monkeypatch.setenv("RANK", rank)
        assert len(list(iter(DataLoader(NUMBERS, 4).progress(file=log)))) == 10
        assert log.getvalue().count("\n") == lines


def test_switched_off_it_shows_what_it_knows() -> None:
    code = """
        from antifreeze import DataLoader
        for batch in DataLoader(list(range(8)), 4).progress("epoch 1"):
            pass
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, "ANTIFREEZE": "off"},
    )
    assert re.fullmatch(r"epoch 1: 2 batches in 0:00, [\d,.]+ batches/s\n", done.stderr)


# ---- terminals -----------------------------------------------------------------------------------


def test_bars_prints_and_bars_within_bars_are_each_a_line(tmp_path: Path) -> None:
    code = """
    import logging

    if __name__ == "__main__":
        logging.basicConfig()
        (handler,) = logging.root.handlers
        train = DataLoader(Numbers(), 3, num_workers=1)
        held_out = DataLoader(Numbers(), 6, num_workers=1)
        for epoch in range(2):
            for step, batch in enumerate(train.progress(f"epoch {epoch}")):
                time.sleep(0.02)
                if step == 9:
                    print("a loss of [bold]", step)
                    for batch in held_out.progress("validation"):
                        time.sleep(0.02)
                    print("an error", file=sys.stderr)
                    logging.warning("a warning")
        assert handler.stream is sys.__stderr__
        print(sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__)
    """
    screen, raw, _ = on_terminal(CLASSES + code, tmp_path)
    shown = [re.sub(r" ━+ ", " | ", text) for text in screen.lines]
    shown = [re.sub(r"  [\d.,]+ samples/s  waited \d+ %  0:0\d$", " ...", text) for text in shown]
    epoch = ["a loss of [bold] 9", "validation | 10/10 ...", "an error", "WARNING:root:a warning"]
    epoch.append("epoch {} | 20/20 ...")
    assert shown == [text.format(n) for n in range(2) for text in epoch] + ["True True"]
    assert screen.cursor
    assert "left" in raw
    # Once it is a line of its own, the inner one is no bar any more.
    assert "validation" not in raw.partition("an error")[0].rpartition("10/10")[2]
    # While both are there, the inner one is below the outer one.
    assert re.search(r"epoch 0 [^\n]*\r\n[^\n]*validation ", raw)


def test_what_a_program_prints_to_a_file_stays_there(tmp_path: Path) -> None:
    code = """
    # stdout: file
    if __name__ == "__main__":
        for batch in DataLoader(Numbers(), 20).progress("epoch 0"):
            print(batch[0].item())
    """
    screen, _, printed = on_terminal(CLASSES + code, tmp_path)
    assert printed == "0\n20\n40\n"
    assert len(screen.lines) == 1 and screen.lines[0].startswith("epoch 0 ━")


def test_workers_write_to_the_streams_of_the_program_and_no_thread_is_started(
    tmp_path: Path,
) -> None:
    code = """
    import logging, threading

    class Looks(Numbers):
        def __getitem__(self, index):
            (handler,) = logging.root.handlers
            return type(sys.stdout if index % 2 else handler.stream).__name__

    if __name__ == "__main__":
        logging.basicConfig()
        for outer in DataLoader(Numbers(), 60).progress():
            assert type(sys.stdout).__name__ == "FileProxy"
            for batch in DataLoader(Looks(), 60, num_workers=1).progress():
                assert set(batch) == {"TextIOWrapper"}, batch
            ours = {t.name for t in threading.enumerate() if not t.name.startswith("antifreeze")}
            assert ours == {"MainThread"}, ours
    """
    screen, _, _ = on_terminal(CLASSES + code, tmp_path)
    assert len(screen.lines) == 2


def test_within_a_live_display_of_another_it_is_a_line(tmp_path: Path) -> None:
    code = """
    from rich.progress import track

    if __name__ == "__main__":
        for epoch in track(range(2), "epochs"):
            for batch in DataLoader(Numbers(), 20).progress(f"epoch {epoch}"):
                pass
    """
    screen, _, _ = on_terminal(CLASSES + code, tmp_path)
    assert [text.split(" batches")[0].split(" ━")[0] for text in screen.lines] == [
        "epoch 0: 3",
        "epoch 1: 3",
        "epochs",
    ]


def test_faults_are_red_and_the_streams_are_as_they_were_when_a_loop_raises() -> None:
    shows, program = open_terminal()
    streams = (sys.stdout, sys.stderr)
    loader = DataLoader(Flawed(), batch_size=4, on_error="skip")
    with os.fdopen(program, "w", encoding="utf-8") as file:
        with pytest.raises(KeyError):
            for step, _ in enumerate(loader.progress("epoch", file=file)):
                if step == 5:
                    raise KeyError
        assert (sys.stdout, sys.stderr) == streams
        raw, last = b"", rb"\x1b\[1;31m  1 fault\x1b\[0m\r\n$"
        give_up = time.monotonic() + 10
        while time.monotonic() < give_up and not re.search(last, raw):  # the kernel passes it on
            if select.select([shows], [], [], 0.1)[0]:
                raw += os.read(shows, 1 << 16)
    os.close(shows)
    assert re.search(last, raw), raw.decode()


def test_a_terminal_that_is_gone_does_not_end_the_epoch() -> None:
    shows, program = open_terminal()
    got = 0
    file = os.fdopen(program, "w", encoding="utf-8")
    for _ in DataLoader(Flawed(), batch_size=1, on_error="skip").progress(file=file):
        if not got:
            os.close(shows)
        time.sleep(0.01)
        got += 1
    assert got == 39
    with pytest.raises(OSError):
        file.close()


def test_an_iterator_that_is_kept_shows_nothing_after_its_end() -> None:
    log = io.StringIO()
    iterator = iter(DataLoader(NUMBERS, batch_size=4).progress(file=log))
    assert len(list(iterator)) == 10
    assert next(iterator, None) is None
    del iterator
    gc.collect()
    assert log.getvalue().count("\n") == 1


# ---- notebooks -----------------------------------------------------------------------------------


def test_a_notebook_has_one_output_that_changes_in_place() -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    code = """
        import time
        from antifreeze import DataLoader
        for batch in DataLoader(list(range(100)), 10).progress("epoch 3"):
            time.sleep(0.1)
    """
    cell = nbformat.v4.new_code_cell(textwrap.dedent(code))
    notebook = nbformat.v4.new_notebook(cells=[cell])
    nbclient.NotebookClient(notebook, timeout=PATIENCE_S).execute()
    (output,) = notebook.cells[0].outputs
    assert output.output_type == "display_data"
    assert output.data["text/plain"].startswith("epoch 3: 10 batches in 0:01, ")
    assert '<progress value="10" max="10">' in output.data["text/html"]
