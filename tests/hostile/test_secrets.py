"""What is secret in a text does not get into logs, reports and files; nor do escapes."""

from __future__ import annotations

import importlib
import io
import json
import logging
import os
import stat
import string
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antifreeze import DataLoader
from antifreeze._reporting import log
from antifreeze._reporting.fault_log_file import FaultFile
from antifreeze._reporting.formatting import shown
from antifreeze._reporting.redaction import redacted, shareable, shareable_line, without_credentials

from ..cli.running import OURS, start, write
from ..repetition import some_of
from ..rogues.clean import Asked, another_thread

ESCAPE = "\x1b]0;owned\x07"
LARGE = 1_000_000  # characters
QUICK_S = 10.0  # several times what they take; with a time that grows with the square: hours


# ---- texts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "Max retries exceeded with url: /bucket/key?X-Amz-Signature=abc&b=c (Caused by X)",
            "Max retries exceeded with url: /bucket/key?X-Amz-Signature=***&b=*** (Caused by X)",
        ),
        ("403: https://host/x.jpg?sig=abc", "403: https://host/x.jpg?sig=***"),
        ("('https://host/x?sig=abc', 7)", "('https://host/x?sig=***', 7)"),
        ("https://host/x?sig=it's&b=c", "https://host/x?sig=***&b=***"),
        ("https://host/x?sig=a',&b=c", "https://host/x?sig=***&b=***"),
        ("{'u':'https://host/x?sig=abc','v':1}", "{'u':'https://host/x?sig=***','v':1}"),
        ("...f&X-Amz-Signature=abc', 7)", "...f&X-Amz-Signature=***, 7)"),
        ("if flags&mask==0: x &= y", "if flags&mask==0: x &= y"),
        ("https://host/x?c2VjcmV0 and more", "https://host/x and more"),
        ("https://host/x?c2VjcmV0PQ==", "https://host/x"),
        ("https://host/cb#access_token=abc", "https://host/cb"),
        ("https://host/login?next=https://me:abc@b/", "https://host/login?next=***"),
        ("redis://:abc@host:6379/0", "redis://host:6379/0"),
        ("postgresql+psycopg://me:abc@host:5432/db", "postgresql+psycopg://host:5432/db"),
        ("s3+http://key:abc@host/x", "s3+http://host/x"),
        ("cannot open cache/https:/me:abc@host/x", "cannot open cache/https:/host/x"),
        ('{"u": "https:\\/\\/me:abc@host"}', '{"u": "https:\\/\\/host"}'),
        ("//me:abc@host/x", "//host/x"),
        ("http:///me:abc@host/x", "http:///host/x"),
        ("c:/a/me@b.txt and file:/b:c/d@e", "c:/a/me@b.txt and file:/b:c/d@e"),
        ("https://token@host/x", "https://host/x"),
        ("https://me:a'b,c)d@host/x", "https://host/x"),
        ("https://me:12/34@host/x", "https://host/x"),
        ("https://me:a@b/c@host/x", "https://host/x"),
        ("https://me:a?b=c@host/x", "https://<path>"),
        ("a://me:abc@host,b://me:abc@host", "a://host,b://host"),
        ("9https://me:abc@host", "9https://host"),
        ("http://[::1]:80/x", "http://[::1]:80/x"),
        ("see https://host/x.jpg.", "see https://host/x.jpg."),
        ("is that so? a=b", "is that so? a=b"),
        ("re.compile('(?=a)(?P<b>c)')", "re.compile('(?=a)(?P<b>c)')"),
    ],
)
def test_urls_and_queries_keep_names_and_lose_secrets(text: str, told: str) -> None:
    assert redacted(text) == told


WORD = st.text(string.ascii_letters + string.digits, min_size=1, max_size=8)
# What RFC 3986 allows in a password or a value; the rest of a secret is known by its beginning.
LOOSE = st.text(string.ascii_letters + string.digits + "-._~!$'()*+,:%", max_size=8)
SECRET = st.builds("SECRET{}".format, LOOSE)
AROUND = st.text(st.characters(codec="utf-8"), max_size=30).filter(lambda text: "@" not in text)


@st.composite
def urls(draw: st.DrawFn) -> str:
    scheme = draw(st.sampled_from(["https", "s3", "redis", "postgresql+psycopg", "gs", "s3+http"]))
    users = ["", "{0}:{1}@", ":{1}@", "{1}@", "{0}:{1}/{1}@", "{0}:{1}@{1}@"]
    user = draw(st.sampled_from(users)).format(draw(WORD), draw(SECRET))
    port = draw(st.sampled_from(["", ":8080"]))
    path = "".join(f"/{part}" for part in draw(st.lists(WORD, max_size=3)))
    values = draw(st.lists(st.tuples(WORD, SECRET), max_size=3))
    query = "&".join(f"{name}={value}" for name, value in values)
    return f"{scheme}://{user}{draw(WORD)}{port}{path}{'?' * bool(query)}{query}"


@pytest.mark.parametrize("share", some_of(range(5), 1))
@settings(max_examples=100, deadline=None)
@given(
    parts=st.lists(st.tuples(AROUND, st.sampled_from([" ", "'", '"', "(", "<", "\n", "x"]), urls()))
)
def test_no_secret_of_any_url_survives(share: int, parts: list[tuple[str, str, str]]) -> None:
    text = "".join(f"{before}{mark}{url} " for before, mark, url in parts)
    for clean in (without_credentials, redacted, shareable, shareable_line):
        assert "SECRET" not in clean(text)
    assert redacted(redacted(text)) == redacted(text)


@given(WORD, SECRET)
def test_a_text_that_is_cut_is_cleaned_before(name: str, secret: str) -> None:
    index = f"https://host/{'x' * 100}?{name}={secret}"
    assert "SECRET" not in shown(index)
    assert "SECRET" not in shown([index, {"url": index}])


@pytest.mark.parametrize(
    "part",
    [
        *("://", "?a=", "a.", "a.a://", "x://a@", "'", "?", "a:b@", "&a=", "http://h?a&", "@", ":"),
        *("https://u:p@h ", "?a='", "://?a=@", "\x1b", "\n", "::", "##[", "/a", '"a', "a "),
    ],
)
@pytest.mark.parametrize("hides", ["0", "1"])
def test_long_texts_take_no_longer_than_their_length(
    part: str, hides: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTIFREEZE_REDACT", hides)
    began = time.monotonic()
    shareable(part * (LARGE // len(part)))
    assert time.monotonic() - began < QUICK_S


# ---- the logger ----------------------------------------------------------------------------------


def test_no_log_line_has_a_secret_or_an_escape(caplog: pytest.LogCaptureFixture) -> None:
    log.logger.warning("%s: %s\n\tat %s", "antifreeze", "https://me:abc@host/x?sig=abc", ESCAPE)
    log.logger.error("::error::%s", 7)
    assert caplog.messages == [
        "antifreeze: https://host/x?sig=***\n\tat \\x1b]0;owned\\x07",
        "\\::error::7",
    ]


def test_records_that_are_harmless_stay_as_they_are(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError("x")
    except ValueError:
        log.logger.warning("worker %s: %r?", 3, "line\n", exc_info=True)
        log.logger.warning("of %s", "https://me:abc@host", exc_info=True, extra={"rank": 7})
    plain, changed = caplog.records
    assert plain.msg == "worker %s: %r?" and plain.args == (3, "line\n")
    assert changed.getMessage() == "of https://host" and changed.rank == 7
    assert plain.exc_info is not None and changed.exc_info is not None


def test_a_traceback_in_a_log_line_has_no_secret_and_no_escape() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    log.logger.addHandler(handler)
    try:
        raise ValueError(f"https://me:abc@host/x?sig=def {ESCAPE}")
    except ValueError:
        log.logger.error("failed", exc_info=True)
    finally:
        log.logger.removeHandler(handler)
    text = stream.getvalue()
    assert "Traceback" in text and "https://host/x?sig=***" in text
    assert "ValueError: https://me" not in text and ESCAPE not in text


def test_the_filter_is_there_once_and_breaks_nothing() -> None:
    importlib.reload(log)
    kinds = [type(each).__name__ for each in logging.getLogger("antifreeze").filters]
    assert kinds.count("RedactingFilter") == 1
    record = logging.LogRecord("antifreeze", 30, "", 0, "%d %d", ("a",), None)
    assert log.RedactingFilter().filter(record) and record.args == ("a",)


def _logs(thing: Any) -> int:
    logging.getLogger("antifreeze").warning("%s %s", thing, ESCAPE)
    return 0


@pytest.mark.parametrize("clean", [False, True])
def test_what_workers_log_passes_the_filter_too(tmp_path: Path, clean: bool) -> None:
    file = tmp_path / "log.txt"
    handler = logging.FileHandler(file)
    log.logger.addHandler(handler)
    try:
        dataset = Asked("https://me:abc@host/x", _logs)
        if clean:
            with another_thread():
                list(DataLoader(dataset, num_workers=1))
        else:
            list(DataLoader(dataset, num_workers=1))
    finally:
        log.logger.removeHandler(handler)
        handler.close()
    assert file.read_text().splitlines().count("https://host/x \\x1b]0;owned\\x07") == 2
    assert "abc" not in file.read_text()


# ---- reports and files ---------------------------------------------------------------------------

SCRIPT = """
    import torch
    from antifreeze import DataLoader

    class Bucket:
        urls = {n: f"https://me:SECRET@host/{n}.jpg?sig=SECRET" for n in range(8)}
        def __len__(self): return len(self.urls)
        def __getitem__(self, url):
            if url.endswith("/3.jpg?sig=SECRET"):
                raise OSError(f"403 for url: /b/3.jpg?sig=SECRET (at {url}) \\x1b]0;owned\\x07")
            return 0

    if __name__ == "__main__":
        urls = list(Bucket.urls.values())
        loader = DataLoader(Bucket(), sampler=urls, num_workers=WORKERS, on_error="skip",
                            fault_log="faults.jsonl")
        list(loader)
        print(loader)
        print(loader.explain())
        assert "SECRET" in loader.faults[0].exception  # the program's own
"""


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_run_tells_and_writes_no_secret_and_no_escape(tmp_path: Path, workers: str) -> None:
    script = write(tmp_path, SCRIPT.replace("WORKERS", workers))
    done = start(tmp_path, *OURS, str(script))
    assert done.returncode == 0, done.stderr.decode()
    log_file = tmp_path / "faults.jsonl"
    (fault,) = (json.loads(line) for line in log_file.read_text().splitlines())
    assert fault["index"] == "https://host/3.jpg?sig=***"
    assert "403 for url: /b/3.jpg?sig=*** (at https://host/3.jpg?sig=***)" in fault["exception"]
    assert stat.S_IMODE(log_file.stat().st_mode) == 0o600
    for text in (done.stdout.decode(), done.stderr.decode(), json.dumps(fault)):
        assert "SECRET" not in text and "\x1b" not in text and "\x07" not in text
    assert "403 for url: /b/3.jpg?sig=***" in done.stderr.decode()


def test_a_scan_shows_and_writes_no_secret_and_no_escape(tmp_path: Path) -> None:
    code = """
        class Bucket:
            def __init__(self, works=True):
                if not works:
                    raise OSError("https://me:SECRET@host \\x1b]0;owned\\x07")
                self.paths = [f"/data/\\x1b]0;{n}\\x07/{n}.jpg" for n in range(8)]
            def __len__(self): return 8
            def __getitem__(self, index):
                path = self.paths[index]
                if index == 3:
                    raise OSError(f"{path}: https://me:SECRET@host/x?sig=SECRET \\x1b]0;owned\\x07")
                return index
    """
    scan = [sys.executable, "-m", "antifreeze", "scan", "-w", "1"]
    write(tmp_path, code, "bucket.py")
    for expression in ("Bucket()", "Bucket(False)"):
        done = start(tmp_path, *scan, f"bucket.py:{expression}")
        text = done.stdout.decode() + done.stderr.decode()
        assert "https://host" in text and "owned" in text
        assert "SECRET" not in text and "\x1b" not in text and "\x07" not in text
    written = (tmp_path / "quarantine.json").read_text()
    assert "https://host/x?sig=***" in written
    assert "SECRET" not in written and "\x1b" not in written


def test_a_title_means_nothing_to_a_terminal() -> None:
    out = io.StringIO()
    list(DataLoader([1, 2]).progress(f"{ESCAPE} https://me:abc@host", file=out))
    assert "abc" not in out.getvalue() and "\x1b" not in out.getvalue()


# ---- the fault log -------------------------------------------------------------------------------


def test_a_fault_log_is_the_users_alone_unless_it_was_there(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        FaultFile(tmp_path / "new.jsonl").write({"a": 1})
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "new.jsonl").stat().st_mode) == 0o600
    there = tmp_path / "there.jsonl"
    there.touch()
    there.chmod(0o664)
    (tmp_path / "link.jsonl").symlink_to(there)
    FaultFile(tmp_path / "link.jsonl").write({"a": 1})
    assert stat.S_IMODE(there.stat().st_mode) == 0o664 and there.read_text() == '{"a": 1}\n'


def test_a_fault_log_that_is_a_pipe_nobody_reads_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    os.mkfifo(tmp_path / "pipe")
    began = time.monotonic()
    FaultFile(tmp_path / "pipe").write({"a": 1})
    assert time.monotonic() - began < QUICK_S and "cannot be written" in caplog.text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a device")
def test_a_fault_log_is_not_written_onto_a_disk(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    try:
        os.mknod(tmp_path / "disk", 0o600 | stat.S_IFBLK, os.makedev(7, 255))
    except PermissionError:
        pytest.skip("no device can be made here")
    FaultFile(tmp_path / "disk").write({"a": 1})
    assert "cannot be written" in caplog.text
