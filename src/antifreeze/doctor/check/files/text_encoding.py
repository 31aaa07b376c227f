"""Decode a file's bytes to look at them, which never fails, and encode text exactly as it was."""

from __future__ import annotations

import codecs
import io
import tokenize
from dataclasses import dataclass

BOM = "\ufeff"
# They take the square of a file's size: four megabytes would take hours.
QUADRATIC = frozenset({"punycode", "idna"})


@dataclass(frozen=True, slots=True)
class Decoded:
    """A file's text, with its line ends, and with its byte order mark if it has one."""

    data: bytes
    text: str
    encoding: str = ""  # to write it with; '' if that would change more than was meant
    problem: str = ""  # why there is none

    def encoded(self, text: str) -> bytes:
        """Return another text as bytes of the same encoding."""
        return text.encode(self.encoding) if text != self.text else self.data


def decode(data: bytes) -> Decoded:
    """Decode as Python does, but never fail: look even if a letter in a comment is wrong."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        if encoding == "utf-8-sig":
            encoding = "utf-8"  # the mark is a character of the text
        if codecs.lookup(encoding).name in QUADRATIC:
            raise LookupError(f"the encoding {encoding} is for names of hosts, not for files")
        text = data.decode(encoding)
        if text.encode(encoding) == data:
            return Decoded(data, text, encoding)
        return Decoded(data, text, problem=f"as {encoding} it cannot be written as it was")
    except (SyntaxError, UnicodeError, LookupError) as error:
        return Decoded(data, data.decode("utf-8", errors="replace"), problem=str(error))
