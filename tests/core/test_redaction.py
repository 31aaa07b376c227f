"""Which strings are names of files, and what of them is shown."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from antifreeze._reporting.redaction import disclosed, redacted

PATHS = [
    "/data/train/0013.jpg",
    "/data/train/000013",
    "train/n01440764/x.JPEG",
    "0013.png",
    "data/golden retriever/photo 1.jpg",
    "s3://bucket/shards/0001.tar",
    "C:\\data\\x.png",
]
NO_PATHS = [
    "",
    "a dog / a cat",
    "and/or",
    "1/2",
    "2024/01/02",
    "text/plain",
    "john.smith",
    "jane@example.com",
    "jane@host:/home/jane/x.jpg",
    "torch.float32",
    "The image is in x.jpg",
    "first line\n/data/x.jpg",
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAgGBgcGBQgHBwcJCQ==",
    "/" + "Qk02AwAAAAAAADYAAAAoAAAA" * 4 + "/x",
    "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "postgres://user:secret@host/db",
    "img.jpg?token=secret",
    "/data/" + 600 * "x" + ".jpg",
]


@pytest.mark.parametrize("text", PATHS)
def test_a_path_is_named(text: str) -> None:
    assert disclosed(text) == text


@pytest.mark.parametrize("text", NO_PATHS)
def test_what_may_be_data_is_not_named(text: str) -> None:
    assert disclosed(text) == ""


def test_paths_of_pathlib_are_named_and_their_subclasses_are_not_asked() -> None:
    class Own(PurePosixPath):
        def __str__(self) -> str:
            raise AssertionError("the user's code was called")

    class Text(str):
        def __len__(self) -> int:
            raise AssertionError("the user's code was called")

    assert disclosed(Path("/data/any name")) == "/data/any name"
    assert disclosed(Own("/data/x.jpg")) == disclosed(Text("/data/x.jpg")) == ""
    assert disclosed(b"/data/x.jpg") == disclosed(7) == disclosed(None) == ""


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://host/x.jpg", "https://host/x.jpg"),
        ("https://host:8080/x.jpg#part", "https://host:8080/x.jpg"),
        ("https://me:secret@host/x.jpg", "https://host/x.jpg"),
        ("https://me:sec/ret@host/x.jpg", "https://host/x.jpg"),
        ("https://me:se@cret@host/x.jpg", "https://host/x.jpg"),
        ("https://host/x.jpg?sig=secret&key=secret", "https://host/x.jpg"),
        ("https://host/x.jpg;session=secret", "https://host/x.jpg"),
        ("https://host/x.jpg?sig=" + 500 * "secret", "https://host/x.jpg"),
        ("https://me:secret/x.jpg", ""),
    ],
)
def test_a_url_is_named_without_what_may_be_secret(url: str, shown: str) -> None:
    assert disclosed(url) == shown
    assert "secret" not in redacted(f"403 for '{url}' (tried twice)")


TEXT = """Traceback (most recent call last):
  File "/home/me/train.py", line 4, in load
    return open('/data/x y.jpg')
FileNotFoundError: [Errno 2] No such file: '/data/x y.jpg', nor /data/z.png, at train.py:41"""


def test_names_of_data_are_hidden_on_demand_and_lines_of_code_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert redacted(TEXT) == TEXT
    monkeypatch.setenv("ANTIFREEZE_REDACT", "1")
    assert disclosed("/data/x.jpg") == disclosed(Path("/data/x.jpg")) == ""
    hidden = redacted(TEXT)
    assert "/data" not in hidden and ".jpg" not in hidden and ".png" not in hidden
    assert 'File "/home/me/train.py", line 4, in load' in hidden and "train.py:41" in hidden
    assert redacted("see https://host/x.jpg.") == "see <path>"
    monkeypatch.setenv("ANTIFREEZE_REDACT", "0")
    assert disclosed("/data/x.jpg") == "/data/x.jpg"
