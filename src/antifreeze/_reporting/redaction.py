"""What may be said about files of data: which strings are paths, and what is removed from them.

1. Only what is certainly the name of a file is named. A string of the user's data may be anything:
   a caption, a key, an encoded image. When in doubt it is not a path.
2. A URL is named without user, password, fragment and the values of its query, wherever it is
   named; so is a query without its URL, as HTTP libraries print it. When in doubt, more is removed.
3. With `ANTIFREEZE_REDACT=1` no file of data is named at all. Files of code are: they are needed.
"""

from __future__ import annotations

import os
import re
from pathlib import PosixPath, PurePath, PurePosixPath, PureWindowsPath
from typing import Any

from .untrusted_text import as_log_line, printable_lines

VARIABLE = "ANTIFREEZE_REDACT"
HIDDEN = "<path>"  # in a text, for the name of a file
SECRET = "***"  # for the value of a parameter in a query
LONGEST = 512  # characters of a path; what is longer is more likely to be data
LONGEST_URL = 8192  # characters, with its query: signed ones are long
LONGEST_PART = 64  # characters between two slashes, where no extension says that it is a file

_PATHS = (PosixPath, PurePosixPath, PureWindowsPath)
_SCHEMES = frozenset(
    {
        *("abfs", "abfss", "az", "file", "ftp", "gcs", "gs", "hdfs", "hf", "http", "https", "oss"),
        *("r2", "s3", "s3a", "sftp", "wasb", "wasbs"),
    }
)
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.+)", re.DOTALL)
# All that follow take a time that grows with the text's length, not with its square: texts are of
# others. A quote ends a URL only where it could end a string: passwords and values may have some.
_SCHEME = r"(?<![A-Za-z0-9+.-])[A-Za-z0-9+.-]*+"
_TO_END = r"(?:[^\s'\"<>]|'(?![,)\]}:;]*(?:[\s'\"<>]|$)))*+"
_URL_IN_TEXT = re.compile(rf"{_SCHEME}://{_TO_END}")
_AFTER_SCHEME = re.compile(rf"(?:[^\s\"<>?#]*@)?{_TO_END}")
_PARTS = re.compile(r"([^/?#;]*)([^?#;]*)([^?#]*)(?:\?([^#]*))?(.*)", re.DOTALL)
_PORT = re.compile(r"(?:\[[0-9A-Fa-f:.%]*\]|[^:]*)(?::\d*)?")  # a host with or without one
_QUERY = re.compile(rf"\?(?=[^\s'\"<>?=&;]+=){_TO_END}")
# What is left of a query whose beginning was cut off, or ended by a quote. (`==` is code.)
_REST_OF_QUERY = re.compile(r"&([\w.~%$\[\]:-]{1,64})=(?!=)[^\s&\"<>]+")
_NAME_OF_VALUE = re.compile(r"[\w.~%$\[\]:-]{1,64}")
# Names that stand alone, or have blanks in them, are files only if they end like one.
_EXTENSIONS = frozenset(
    {
        *("7z", "aac", "arrow", "avi", "avif", "bam", "bin", "bmp", "bz2", "ckpt", "csv", "dat"),
        *("db", "dcm", "dicom", "exr", "fa", "fasta", "fastq", "feather", "flac", "geojson"),
        *("gif", "gz", "h5", "hdf", "hdf5", "heic", "hdr", "html", "ico", "jp2", "jpe", "jpeg"),
        *("jpg", "json", "jsonl", "laz", "las", "lmdb", "m4a", "mat", "md", "mha", "mhd", "mid"),
        *("mkv", "mov", "mp3", "mp4", "mpeg", "mpg", "msgpack", "nc", "ndjson", "nii", "npy"),
        *("npz", "nrrd", "obj", "ogg", "opus", "orc", "parquet", "pcd", "pdf", "pfm", "pgm"),
        *("pickle", "pkl", "ply", "png", "ppm", "pt", "pth", "rar", "raw", "safetensors"),
        *("sqlite", "stl", "svg", "svs", "tar", "tfrecord", "tfrecords", "tgz", "tif", "tiff"),
        *("toml", "tsv", "txt", "wav", "webm", "webp", "wma", "wmv", "xlsx", "xml", "xz", "yaml"),
        *("yml", "zarr", "zip", "zst"),
    }
)
_EXTENSION = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,7}|7z")
# User and password after one slash, or after an odd number of them: a folder that was named after a
# URL, of which the kernel leaves one; JSON in JSON.
_AFTER_SLASH = re.compile(r"(?<=/)[^/\s@:'\"]{0,128}:[^/\s@]{1,128}@(?=[\w\[])")
_NEVER = re.compile(r"[<>|*?\"\x00]")  # in no path that anybody would write
_QUOTED = re.compile(r"(?<![\w])(['\"])(?P<text>(?:(?!\1)[^\\\n]){1,512})\1")
_WORD = re.compile(r"[^\s'\",;()\[\]{}<>]{1,512}")
_CODE = re.compile(r'^\s*File ".*", line \d+')


def redacts() -> bool:
    """Whether the user wants no file of data to be named."""
    return os.environ.get(VARIABLE, "") not in ("", "0")


def disclosed(value: Any) -> str:
    """Return the path that a value is, as it may be shown; empty if it is none, or may not be.

    No method of a class of the user's is called: only exact types of Python's own are looked at.
    """
    if redacts():
        return ""
    if type(value) in _PATHS:
        text = str(value)
        return text if 0 < len(text) <= LONGEST and text.isprintable() and text != "." else ""
    if type(value) is not str or not 0 < len(value) <= LONGEST_URL:
        return ""
    if (url := _URL.fullmatch(value)) is not None:
        value = _without_credentials(url[1], url[2]) if url[1].lower() in _SCHEMES else ""
        return value if len(value) <= LONGEST else ""
    return value if len(value) <= LONGEST and _is_path(value) else ""


def _is_path(text: str) -> bool:
    if not text.isprintable() or text.strip() != text or _NEVER.search(text):
        return False
    first = re.split(r"[/\\]", text, maxsplit=1)[0]
    if "@" in first:  # a mail address, or a host with its user
        return False
    extension = _extension(text)
    is_known = extension.lower() in _EXTENSIONS
    if "/" not in text and "\\" not in text:
        return is_known and " " not in text
    if " " in text:
        return is_known
    if extension:
        return True
    parts = text.split("/")[1:]
    return (
        text.startswith("/")
        and sum(map(bool, parts)) >= 2
        and max(map(len, parts)) <= LONGEST_PART
        and not set("+=") & set(text)  # base64
    )


def _extension(text: str) -> str:
    """Return how the name of a file ends, without the dot; empty if it has no such end."""
    name = re.split(r"[/\\]", text)[-1]
    stem, _, ending = name.rpartition(".")
    return ending if stem.strip(".") and _EXTENSION.fullmatch(ending) else ""


def _without_credentials(scheme: str, rest: str) -> str:
    """Return a URL without what may be secret in it, nor its query; empty if that cannot be
    told."""
    place = _place(rest)
    text = f"{scheme}://{place}"
    return text if place and text.isprintable() and not _NEVER.search(text) else ""


def _place(rest: str) -> str | None:
    """Return host and path of what stands behind `://`; None if they cannot be told from a
    password, which may have any character in it."""
    found = _PARTS.match(rest)
    assert found is not None  # it matches anything
    host, path, later = found[1], found[2], rest[found.end(2) :]
    if ":" in host or "@" in host:
        if "@" in later:
            return None
        if "@" in path:  # most likely a password with a slash in it
            return path.rpartition("@")[2]
    host = host.rpartition("@")[2]
    return host + path if _PORT.fullmatch(host) else None


def without_credentials(text: str) -> str:
    """Return a text in which no URL has a user, a password or a fragment, and no query, of a URL or
    alone, has values."""
    if "://" in text:
        first, *others = text.split("://")
        text = "://".join([first, *map(_clean_start, others)])
    if "/" in text and "@" in text:
        text = _AFTER_SLASH.sub("", text)
    if "?" in text:
        text = _QUERY.sub(_clean_query, text)
    return _REST_OF_QUERY.sub(_clean_rest, text) if "&" in text else text


def _clean_start(text: str) -> str:
    """Clean the rest of a URL at the start of a text."""
    found = _AFTER_SCHEME.match(text)
    assert found is not None  # it matches nothing, too
    rest, tail = _without_tail(found[0])
    place = _place(rest)
    query = ""
    if place is not None and (parts := _PARTS.match(rest)) is not None and parts[4]:
        query = _names(parts[4])
    return (HIDDEN if place is None else place) + query + tail + text[found.end() :]


def _clean_query(found: re.Match[str]) -> str:
    query, tail = _without_tail(found[0])
    return _names(query[1:]) + tail


def _clean_rest(found: re.Match[str]) -> str:
    return f"&{found[1]}={SECRET}{_without_tail(found[0])[1]}"


def _without_tail(text: str) -> tuple[str, str]:
    """Set apart what ends a sentence or closes a bracket, more likely than a URL."""
    url = text.rstrip(".,:;)]}")
    return url, text[len(url) :]


def _names(query: str) -> str:
    """Return a query with the names of its parameters alone. What has no value may be one."""
    found = [each.partition("=") for each in re.split("[&;]", query)]
    names = [name for name, _, value in found if value.strip("=")]
    shown = [f"{name}={SECRET}" for name in names if _NAME_OF_VALUE.fullmatch(name)]
    return f"?{'&'.join(shown)}" if shown else ""


def shareable(text: str) -> str:
    """Return a text of several lines as it may be shown and written: redacted, and without what
    means something to a terminal or a CI service."""
    return printable_lines(redacted(text))


def shareable_line(text: str) -> str:
    """Return the same as one line, in which line ends are shown as all else that is not
    printable."""
    return as_log_line(redacted(text))


def redacted(text: str) -> str:
    """Return a text as it may be written down: URLs without secrets, and with `ANTIFREEZE_REDACT=1`
    without names of files, but for the lines of code in a traceback."""
    text = without_credentials(text)
    if not redacts():
        return text
    return "\n".join(
        line if _CODE.match(line) else _without_paths(line) for line in text.split("\n")
    )


def _without_paths(line: str) -> str:
    line = _URL_IN_TEXT.sub(HIDDEN, line)
    line = _QUOTED.sub(lambda found: HIDDEN if _is_path(found["text"]) else found[0], line)
    return _WORD.sub(_hidden_word, line)


def _hidden_word(found: re.Match[str]) -> str:
    word = found[0].rstrip(".:!")
    return HIDDEN + found[0][len(word) :] if _is_path(word) and not _is_code(word) else found[0]


def _is_code(word: str) -> bool:
    """Whether a word is the place of a line of code, such as `train.py:41`."""
    return PurePath(word.partition(":")[0]).suffix in (".py", ".pyx", ".so")
