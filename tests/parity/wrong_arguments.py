"""Wrong arguments of the constructor: what is given, what torch says, what must be named."""

from dataclasses import dataclass
from typing import Any

from .programs import MapRows, Streams

ROWS = MapRows(10)
STREAM = Streams((10,))


@dataclass(frozen=True)
class Wrong:
    """A wrong argument: what is given, what torch says, what must be named."""

    arguments: dict[str, Any]
    kind: type[Exception]
    argument: str
    value: object
    dataset: Any = ROWS
    phrase: str = ""


WRONG = [
    Wrong({"num_workers": -1}, ValueError, "num_workers", -1, phrase="num_workers option should"),
    Wrong({"timeout": -2}, ValueError, "timeout", -2, phrase="timeout option should be non-neg"),
    Wrong(
        {"prefetch_factor": 3},
        ValueError,
        "prefetch_factor",
        3,
        phrase="prefetch_factor option could only be specified in multiprocessing",
    ),
    Wrong(
        {"prefetch_factor": -3, "num_workers": 1},
        ValueError,
        "prefetch_factor",
        -3,
        phrase="prefetch_factor option should be non-negative",
    ),
    Wrong(
        {"persistent_workers": True},
        ValueError,
        "persistent_workers",
        True,
        phrase="persistent_workers option needs num_workers > 0",
    ),
    Wrong(
        {"shuffle": True},
        ValueError,
        "shuffle",
        True,
        dataset=STREAM,
        phrase="expected unspecified shuffle option, but got shuffle=True",
    ),
    Wrong(
        {"sampler": [1]},
        ValueError,
        "sampler",
        [1],
        dataset=STREAM,
        phrase="expected unspecified sampler option, but got sampler=[1]",
    ),
    Wrong(
        {"batch_sampler": [[1]]},
        ValueError,
        "batch_sampler",
        [[1]],
        dataset=STREAM,
        phrase="expected unspecified batch_sampler option, but got batch_sampler=[[1]]",
    ),
    Wrong(
        {"sampler": [0], "shuffle": True},
        ValueError,
        "shuffle",
        True,
        phrase="sampler option is mutually exclusive with shuffle",
    ),
    Wrong(
        {"batch_sampler": [[0]], "batch_size": 7},
        ValueError,
        "batch_size",
        7,
        phrase="batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and",
    ),
    Wrong(
        {"batch_sampler": [[0]], "batch_size": None},
        ValueError,
        "batch_size",
        None,
        phrase="batch_sampler option is mutually exclusive",
    ),
    Wrong(
        {"batch_sampler": [[0]], "shuffle": True},
        ValueError,
        "shuffle",
        True,
        phrase="batch_sampler option is mutually exclusive",
    ),
    Wrong(
        {"batch_sampler": [[0]], "sampler": [3]},
        ValueError,
        "sampler",
        [3],
        phrase="batch_sampler option is mutually exclusive",
    ),
    Wrong(
        {"batch_sampler": [[0]], "drop_last": True},
        ValueError,
        "drop_last",
        True,
        phrase="batch_sampler option is mutually exclusive",
    ),
    Wrong(
        {"batch_size": None, "drop_last": True},
        ValueError,
        "drop_last",
        True,
        phrase="batch_size=None option disables auto-batching and is mutually exclusive",
    ),
    Wrong(
        {"batch_size": 0},
        ValueError,
        "batch_size",
        0,
        phrase="batch_size should be a positive integer value, but got batch_size=0",
    ),
    Wrong(
        {"batch_size": -4},
        ValueError,
        "batch_size",
        -4,
        phrase="batch_size should be a positive integer value, but got batch_size=-4",
    ),
    Wrong(
        {"batch_size": 2.5},
        ValueError,
        "batch_size",
        2.5,
        phrase="batch_size should be a positive integer value, but got batch_size=2.5",
    ),
    Wrong(
        {"batch_size": True},
        ValueError,
        "batch_size",
        True,
        phrase="batch_size should be a positive integer value, but got batch_size=True",
    ),
    Wrong(
        {"batch_size": "8"},
        ValueError,
        "batch_size",
        "8",
        phrase="batch_size should be a positive integer value, but got batch_size=8",
    ),
    Wrong(
        {"drop_last": "yes"},
        ValueError,
        "drop_last",
        "yes",
        phrase="drop_last should be a boolean value, but got drop_last=yes",
    ),
    Wrong(
        {"multiprocessing_context": "spork", "num_workers": 1},
        ValueError,
        "multiprocessing_context",
        "spork",
        phrase="multiprocessing_context option should specify a valid start method in",
    ),
    Wrong(
        {"multiprocessing_context": 17, "num_workers": 1},
        TypeError,
        "multiprocessing_context",
        17,
        phrase="multiprocessing_context option should be a valid context object or a string",
    ),
    Wrong(
        {"multiprocessing_context": "fork"},
        ValueError,
        "num_workers",
        0,
        phrase="multiprocessing_context can only be used with multi-process loading",
    ),
    # Complaints that torch leaves to Python: no phrase to keep, the type is what scripts rely on.
    Wrong({"num_workers": "2"}, TypeError, "num_workers", "2"),
    Wrong({"num_workers": None}, TypeError, "num_workers", None),
    Wrong({"timeout": "5"}, TypeError, "timeout", "5"),
    Wrong({"timeout": None}, TypeError, "timeout", None),
    Wrong({"prefetch_factor": "2", "num_workers": 1}, TypeError, "prefetch_factor", "2"),
]
