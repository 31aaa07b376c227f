"""Stacks that a worker left are read in every form that Python has written them in."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from antifreeze._core.health.stall_detection import StackLine
from antifreeze._transport.stack_file import StackFile

CRASH = """\
Fatal Python error: Segmentation fault

Current thread 0x00007f5bd2 (most recent call first):
  File "/usr/lib/python3/ctypes/__init__.py", line 530 in string_at
  File "/home/me/train.py", line 21 in __getitem__
  File "/lib/antifreeze/_worker/loop.py", line 300 in run
"""
# From Python 3.14 on: the name of the thread, and the stack of its C code after the other.
CRASH_314 = (
    CRASH.replace("5bd2 (", "5bd2 [af_worker_0] (")
    + """\

Current thread's C stack trace (most recent call first):
  Binary file "/usr/bin/python3.14", at _Py_DumpStack+0x28 [0x5d1f28]
  Binary file "/lib/libc.so.6", at +0x3c050 [0x7f5c3c050]
  <truncated rest of calls>

Extension modules: torch._C, numpy._core._multiarray_umath (total: 2)
"""
)


@pytest.fixture
def trace() -> Iterator[StackFile]:
    made = StackFile()
    yield made
    made.close()


@pytest.mark.parametrize("text", [CRASH, CRASH_314], ids=["before 3.14", "3.14"])
def test_the_stack_of_a_crash_is_that_of_its_python_code(trace: StackFile, text: str) -> None:
    os.write(trace.number, text.encode())
    assert trace.last_words() == (
        StackLine("/usr/lib/python3/ctypes/__init__.py", 530, "string_at"),
        StackLine("/home/me/train.py", 21, "__getitem__"),
    )
