"""Whatever a case file or a table of /proc says, it is understood or refused: nothing raises.

Recorded cases and real tables are taken, and changed at random: 5,000 times in all, of which
`make test` does a fifth.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from antifreeze._linux import bounded_reads, cgroups, procfs, syscalls
from antifreeze.cli import main
from antifreeze.cli.attach import show
from antifreeze.doctor.attach.case_redaction import without_names, without_secrets
from antifreeze.doctor.attach.diagnose import diagnose
from antifreeze.doctor.attach.facts import Case, Thread
from antifreeze.doctor.attach.gather import (
    environment,
    lock_state,
    machine,
    proc,
    py_spy,
    time_since_run,
)
from antifreeze.doctor.attach.gather.socket_peers import Sockets

from ..repetition import some_of
from .stage import ESCAPES, FORBIDDEN, victim

SHARES = 5  # one test each
CASES = sorted((Path(__file__).parent.parent / "doctor" / "cases").glob("*.json"))
often = functools.partial(
    settings,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)

NASTY_TEXTS = [
    *("", "a", " ", "\n", "\f", "\x1b[2J", "\u202e", "\udc80", "(", ") ", "[", "]", "²", "٣", "0x"),
    *(
        "x" * 5000,
        "pipe:[1]",
        "pipe:[",
        "socket:[1]",
        "/",
        "/a (deleted)",
        "tcp 1 -> 2",
        "unix ",
        "-",
    ),
    *("/proc/1", "1" * 30, "-1", "nan", "::error::x", "##vso[a]", "[bold]", ":bomb:", "\\"),
]
NASTY_NUMBERS: list[Any] = [0, 1, -1, 2**31, 2**63, 2**64, -(2**64), 2**65, 10**400, 0.0, -0.5]
NASTY_NUMBERS += [1e300, 5e-324, math.inf, math.nan, True]
NASTY: list[Any] = [*NASTY_TEXTS, *NASTY_NUMBERS, None, [], {}, [[]], [None], {"": 0}, [1] * 50]


@functools.cache
def recorded(path: Path) -> tuple[str, list[tuple[Any, ...]]]:
    """Return a case's text, and the way to each value in it."""
    text = path.read_text()
    return text, list(ways(json.loads(text)))[1:]


def ways(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield way
    if isinstance(value, list):
        value = dict(enumerate(value))
    for name, each in value.items() if isinstance(value, dict) else ():
        yield from ways(each, (*way, name))


CHANGE = st.tuples(
    st.integers(0, 10**9),  # which value
    st.sampled_from(["alike", "alike", "alike", "other", "cut", "twice", "turned", "gone"]),
    st.integers(0, 10**9),
)


def changed(data: Any, known: list[tuple[Any, ...]], change: tuple[int, str, int]) -> None:
    which, how, number = change
    *way, last = known[which % len(known)]
    with contextlib.suppress(KeyError, IndexError, TypeError):  # an earlier change took it away
        for step in way:
            data = data[step]
        value = data[last]
        alike = [each for each in NASTY if type(each) is type(value)]
        if how == "alike" and alike:
            data[last] = alike[number % len(alike)]
        elif how == "cut" and isinstance(value, (str, list)):
            data[last] = value[: number % (len(value) + 1)]
        elif how == "twice" and isinstance(data, list):
            data.append(value)
        elif how == "turned" and isinstance(value, list):
            value.reverse()
        elif how == "gone":
            del data[last]
        else:
            data[last] = NASTY[number % len(NASTY)]


@pytest.mark.parametrize("share", some_of(range(SHARES), 1))
@often(max_examples=2500 // SHARES)
@given(path=st.sampled_from(CASES), changes=st.lists(CHANGE, min_size=1, max_size=12))
def test_a_case_that_was_changed_is_answered_or_refused(
    share: int, path: Path, changes: list[tuple[int, str, int]]
) -> None:
    text, known = recorded(path)
    data = json.loads(text)
    for each in changes:
        changed(data, known, each)
    try:
        case = Case.from_json(json.dumps(data))
    except ValueError as error:
        assert str(error)
        return
    began = time.monotonic()
    for answer in diagnose(without_names(without_secrets(case))):
        assert answer.broken == ()
    assert time.monotonic() - began < 5 * 1.0  # some milliseconds
    assert Case.from_json(case.to_json()) == case


@pytest.mark.parametrize("evil", NASTY_TEXTS, ids=ascii)
@pytest.mark.parametrize("path", CASES[:: len(CASES) // 12], ids=lambda path: path.stem)
def test_no_text_of_a_case_reaches_a_terminal_as_it_is(
    path: Path, evil: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data = json.loads(path.read_text())

    def spoilt(value: Any) -> Any:
        if isinstance(value, str):
            return f"{value}{evil}{ESCAPES}"
        if isinstance(value, list):
            return [spoilt(each) for each in value]
        kept = ("state", "version", "kind")
        items = value.items() if isinstance(value, dict) else ()
        found = {name: each if name in kept else spoilt(each) for name, each in items}
        return found if isinstance(value, dict) else value

    case = Case.from_json(json.dumps(spoilt(data)))
    show(case, diagnose(case))
    said = capsys.readouterr()
    assert said.out and not [each for each in FORBIDDEN if each in said.out + said.err]


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        '{"version": 1, "looks": ' + "[" * 100_000,
        '{"version": 1, "asked": NaN, "looks": []}',
        '{"version": 1, "asked": 1, "looks": [{"at": Infinity, "processes": []}]}',
        '{"version": 1, "asked": 1, "looks": [{"at": 1e999, "processes": []}]}',
        '{"version": 1, "asked": 1, "looks": [{"at": NaN, "processes": []}]}',
        '{"version": 1, "asked": ' + "9" * 10_000 + ', "looks": []}',
        '{"version": 1, "asked": 1, "looks": "look"}',
        '{"version": 1, "asked": 1, "looks": [{"at": 0, "processes": []}]}',
        '{"version": "\\u001b[2J", "looks": []}',
        "\x00",
        "",
        "\ufeff{}",
    ],
    ids=range(13),
)
def test_a_file_that_is_no_case_is_one_line_and_exit_code_2(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "case.json"
    path.write_text(text)
    assert main(["attach", "--case", str(path)]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and len(said.err) < 1000
    assert not [each for each in FORBIDDEN if each in said.err]


def test_a_case_that_is_no_regular_file_is_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "fifo")
    huge = tmp_path / "huge"
    huge.touch()
    os.truncate(huge, 3 << 30)
    for path in (tmp_path / "fifo", huge, Path("/dev/zero"), tmp_path, tmp_path / "missing"):
        assert main(["attach", "--case", str(path)]) == 2
        assert capsys.readouterr().err.count("\n") == 1


# ---- tables of /proc ----------------------------------------------------------------------------

SAMPLES = """\
1: FLOCK  ADVISORY  WRITE 714 fe:00:8912 0 EOF
1: -> POSIX  ADVISORY  READ 715 fe:00:8912 128 200
2: LEASE  ACTIVE    READ 3 00:15:1 0 EOF
00000000dc92c6c8: 00000003 00000000 00000000 0001 03   644 @a socket
00000000dc92c6c9: 00000003 00000000 00000000 0001 03   645 /run/x
   0: 00000000:07E8 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0   0 647 1 0 100
   1: 0000000000000000FFFF00000100007F:07E8 {ANY}:0000 01 0:0 00:0 0     0        0 64 1 0 100
202 0x7f00 0x80 0x0 0x0 0x0 0xffffffff 0x7ffd 0x7f11
se.exec_start                                :      43512345.123456
9:name=systemd:/
0::/user.slice/a b
server:/data /mnt/data\\040b nfs4 rw,relatime 0 0
""".replace("{ANY}", "0" * 32)
TEXT = st.one_of(
    st.sampled_from(NASTY_TEXTS), st.text(st.characters(), max_size=20), st.integers().map(str)
)
EDITS = st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 40), TEXT), max_size=8)


def tables() -> list[str]:
    """Return what the tables of a real process say, and lines that it happens not to have."""
    me = f"/proc/{os.getpid()}"
    names = ("stat", "status", "io", "limits", "maps", "mounts", "cgroup", "environ", "cmdline")
    paths = [f"{me}/{name}" for name in names]
    paths += ["/proc/net/unix", "/proc/net/tcp", "/proc/meminfo", f"{me}/fdinfo/0", "/proc/locks"]
    texts = [Path(each).read_text(errors="replace")[:4000] for each in paths]
    return [*texts, SAMPLES, '[{"os_thread_id": 1, "thread_name": null, "frames": []}]']


def edited(text: str, edits: list[tuple[int, int, str]]) -> str:
    for at, length, new in edits:
        place = at % (len(text) + 1)
        text = text[:place] + new + text[place + length :]
    return text


@pytest.mark.parametrize("share", some_of(range(SHARES), 1))
@often(max_examples=2200 // SHARES)
@given(text=st.sampled_from(tables()), edits=EDITS)
def test_a_table_that_was_changed_is_read_as_far_as_it_goes(
    share: int, text: str, edits: list[tuple[int, int, str]]
) -> None:
    text = edited(text, edits)
    found = procfs.table(text)
    for name in (*found, "missing"):
        assert 0 <= procfs.quantity(found, name) < 10**20
    assert all(0 <= each < 10**20 for each in procfs.counters(text).values())
    for each in procfs.mapped_files(text):
        assert each.path.startswith("/") and 0 <= each.low < 16**16
    procfs.unix_sockets(text)
    for kind in ("tcp", "udp6"):
        procfs.internet_sockets(kind, text)
    for lock in procfs.file_locks(text):
        assert -(10**10) < lock.pid < 10**10
    procfs.mounts(text)
    for group in cgroups.groups_in(text):
        assert 0 < len(group.folders) <= cgroups.MOST_LEVELS + 1
        assert all(each.startswith(group.top) for each in group.folders)
    assert all(len(each.rights) == 4 for each in procfs.mappings(text))
    assert all(0 <= each < 10**9 for each in procfs.watched_descriptors(text))
    assert all(holder >= -1 for _, holder in procfs.descriptor_locks(text))
    assert min(procfs.memory_use(found)) >= 0
    for line in text.split("\n"):
        procfs.stat(line)
        procfs.pages(line)
        assert time_since_run.ran_at(f"{line}\n") >= 0
        for kind in ("x86_64", "aarch64", "other"):
            assert len(syscalls.parse(line, kind)) in (0, 7)
    kept = proc.without_secrets(tuple(procfs.strings(text))[: proc.MOST_WORDS])
    assert all(isinstance(each, str) for each in kept)
    py_spy.read_stacks(text)


def test_the_tables_of_a_real_process_are_understood() -> None:
    me = os.getpid()
    seen = procfs.stat(bounded_reads.proc_text(me, "stat"))
    assert seen is not None and (seen.state in "RS", seen.parent) == (True, os.getppid())
    mapped = procfs.mapped_files(bounded_reads.proc_text(me, "maps"))
    assert os.path.realpath(sys.executable) in {each.path for each in mapped}
    assert procfs.counters(bounded_reads.system_text("/proc/meminfo"))["MemTotal"] > 10**5
    assert procfs.unix_sockets(SAMPLES) == {"644": "unix @a socket", "645": "unix /run/x"}
    inet = procfs.internet_sockets("tcp", SAMPLES)
    assert inet == {"647": "tcp 0.0.0.0:2024 (listening)", "64": "tcp 127.0.0.1:2024 -> [::]:0"}
    locks = [(each.kind, each.pid, each.inode, each.waits) for each in procfs.file_locks(SAMPLES)]
    assert locks[:2] == [("FLOCK", 714, "8912", False), ("POSIX", 715, "8912", True)]
    assert procfs.mounts(SAMPLES) == [("/mnt/data b", "nfs4")]
    pages = procfs.pages(bounded_reads.proc_text(me, "statm"))
    assert pages is not None and pages.mapped > pages.resident > pages.shared > 0
    use = procfs.memory_use(procfs.table(bounded_reads.proc_text(me, "status")))
    assert use.mapped > use.largest > use.own > 0


SLEEPS = "import time\nprint('there', flush=True)\ntime.sleep(600)"


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A folder like /proc, with the files of one process in it."""
    folder = tmp_path_factory.mktemp("proc")
    with victim(SLEEPS) as pid:
        own = ("stat", "status", "io", "limits", "comm", "cmdline", "maps", "environ", "cgroup")
        of_thread = ("stat", "status", "syscall", "wchan", "comm", "sched")
        names = [
            *own,
            "mounts",
            *(f"net/{each}" for each in ("unix", "tcp", "tcp6", "udp", "udp6")),
        ]
        names += [f"task/{pid}/{each}" for each in of_thread]
        names += [f"fdinfo/{each}" for each in os.listdir(f"/proc/{pid}/fd")]
        for name in names:
            with contextlib.suppress(OSError):
                data = Path(f"/proc/{pid}/{name}").read_bytes()
                path = folder / str(pid) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data[:8000])
        (folder / str(pid) / "fd").mkdir()
        for name in os.listdir(f"/proc/{pid}/fd"):
            target = os.readlink(f"/proc/{pid}/fd/{name}")
            (folder / str(pid) / "fd" / name).symlink_to(target)
    return folder, pid


@pytest.mark.parametrize("share", some_of(range(SHARES), 1))
@often(max_examples=300 // SHARES)
@given(data=st.data())
def test_a_process_whose_tables_were_changed_is_looked_at(
    share: int, data: st.DataObject, copied: tuple[Path, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, pid = copied
    paths = sorted(each for each in (folder / str(pid)).rglob("*") if each.is_file())
    chosen = data.draw(st.lists(st.sampled_from(paths), min_size=1, max_size=6, unique=True))
    before = {each: each.read_bytes() for each in chosen}
    monkeypatch.setattr(bounded_reads, "PROC", str(folder))
    try:
        for path, content in before.items():
            text = edited(content.decode(errors="replace"), data.draw(EDITS))
            path.write_bytes(text.encode(errors="surrogatepass"))
        seen = proc.process(pid, Sockets(pid))
        assert proc.parents().keys() <= {pid}
        machine.machine(pid)
        environment.variable(pid, "TMPDIR")
        lock_state.file_locks((seen,) if seen is not None else ())
        time_since_run.TimesSinceRun().seconds([pid])
        proc.inner_number(pid, pid)
        if seen is not None:
            found = Case(pid, (bounded_look(seen),))
            assert Case.from_json(found.to_json()) == found
            diagnose(found)
    finally:
        for path, content in before.items():
            path.write_bytes(content)


def bounded_look(seen: Any) -> Any:
    from antifreeze.doctor.attach.facts import Look

    return Look(0.0, (seen,))


# ---- regular expressions ------------------------------------------------------------------------


def patterns() -> dict[str, tuple[re.Pattern[str], bool]]:
    """Return every regular expression that texts of others are matched with, and whether it is
    looked for anywhere in them, which may take long where a match at the start does not."""
    found = {}
    rooms = ("antifreeze.doctor.attach", "antifreeze._linux", "antifreeze._reporting.redaction")
    for name, module in sorted(sys.modules.items()):
        if not name.startswith(rooms) or not getattr(module, "__file__", ""):
            continue
        source = Path(str(module.__file__)).read_text()
        for attribute, value in vars(module).items():
            if isinstance(value, re.Pattern) and f"{attribute} = re.compile" in source:
                anywhere = rf"\b{attribute}\.(search|sub|findall|finditer|split)\("
                found[f"{name}.{attribute}"] = value, re.search(anywhere, source) is not None
    return found


ALPHABET = [*"a0 /.-:=?&[('@#", "\\", "::", "//", "://", "a.", "/a", "?a=", "a:", " -> ", ", "]
ALPHABET += ["omp.so", "\t", "a@", "[a]", "x=1, "]
BEGINNINGS = ("", "a", "/", "from multiprocessing.spawn import a; a(", "http://")


def test_there_are_regular_expressions_to_try() -> None:
    assert len(patterns()) > 15


@pytest.mark.parametrize("name", patterns())
def test_no_text_takes_a_regular_expression_long(name: str) -> None:
    pattern, anywhere = patterns()[name]
    for part in ALPHABET:
        for start in BEGINNINGS:
            text = start + part * (20_000 // len(part)) + "\x00"
            began = time.monotonic()
            pattern.fullmatch(text)
            pattern.match(text)
            if anywhere:
                pattern.search(text)
            assert time.monotonic() - began < 1.0, (part, start)


def test_a_thread_in_a_call_that_was_cut_short_has_all_its_arguments() -> None:
    assert Thread(1, call=(1,)).call == (1, 0, 0, 0, 0, 0, 0)
    assert Thread(1).call == ()
