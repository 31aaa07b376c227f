"""Thread pools of native libraries are known by the names of their threads."""

from __future__ import annotations

import pytest

from antifreeze._core.native_pool_names import pool_used, pools_among

# As /proc/PID/task/*/comm had them: polars 2.1, grpcio 1.85, pyzmq 27.3.
POLARS = ("python", "polars-0", "polars-1", "polars-ooc-clea", "tokio-rt-worker", "async-executor-")
GRPC = ("python", "grpc_global_tim", "event_engine", "event_engine", "lifeguard")
ZMQ = ("python", "ZMQbg/Reaper", "ZMQbg/IO/0")


def test_threads_are_counted_for_one_pool_each() -> None:
    found = {pool.library.split()[0]: threads for pool, threads in pools_among((*POLARS, *GRPC))}
    assert found == {
        "polars": ["polars-0", "polars-1", "polars-ooc-clea"],
        "gRPC": ["grpc_global_tim", "event_engine", "event_engine", "lifeguard"],
        "tokio": ["tokio-rt-worker", "async-executor-"],
    }


@pytest.mark.parametrize(
    ("names", "file", "library"),
    [
        (POLARS, "/venv/lib/python3.11/site-packages/polars/lazyframe/engine.py", "polars"),
        (GRPC, "/usr/lib/python3/dist-packages/grpc/_channel.py", "gRPC"),
        (GRPC, "grpc/_channel.py", "gRPC"),  # as py-spy shortens it
        (ZMQ, "zmq/sugar/socket.py", "ZeroMQ"),
    ],
)
def test_a_stack_leads_into_the_library_of_a_pool(
    names: tuple[str, ...], file: str, library: str
) -> None:
    used = pool_used(names, ["data.py", file])
    assert used is not None and used[0].library == library


@pytest.mark.parametrize(
    ("names", "file"),
    [
        (POLARS, "/home/jo/polars_reader.py"),
        (POLARS, "/home/jo/project/polars/reader.py"),
        (GRPC, "/venv/lib/python3.11/site-packages/polars/lazyframe/engine.py"),
        (("python", "Thread-1"), "grpc/_channel.py"),
    ],
)
def test_what_only_sounds_alike_is_not_named(names: tuple[str, ...], file: str) -> None:
    assert pool_used(names, [file]) is None
