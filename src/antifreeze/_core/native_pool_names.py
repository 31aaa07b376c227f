"""Thread pools of native libraries, known by the names of their threads.

A fork copies what a library knows of its threads, not the threads: a worker that uses the library
hands work to nobody and waits for ever, or polls for ever. The kernel keeps the first 15 characters
of a thread's name. Names seen with polars 2.1, grpcio 1.85 and pyzmq 27.3 in November 2026.

Not here, since their forks work: the pools of pyarrow 26.0 and of numba 0.68 (workqueue), which are
made anew in the child, and of tokenizers 0.23. Their threads have no names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from .frozen_values import frozen


@frozen
class NativePool:
    """The threads of one library."""

    library: str
    threads: tuple[str, ...]  # how their names begin
    packages: tuple[str, ...]  # Python packages whose calls hand work to them
    own: tuple[str, ...] = ()  # of these, those that do nothing else; none: all of them


POOLS = (
    NativePool("polars", ("polars-",), ("polars",)),
    NativePool(
        "gRPC",
        ("grpc_", "event_engine", "resolver-executo", "default-executo", "lifeguard"),
        ("grpc", "google/cloud", "google/api_core"),
        ("grpc",),  # much of Google's is plain HTTP
    ),
    NativePool("ZeroMQ", ("ZMQbg",), ("zmq",)),
    NativePool("AWS's C runtime", ("AwsEventLoop",), ("awscrt", "s3torchconnector")),
    NativePool(
        "tokio (a runtime of Rust libraries)",
        ("tokio-runtime-w", "tokio-rt-worker", "async-executor-"),
        ("polars", "lance", "deltalake", "datafusion", "obstore", "icechunk"),
    ),
    NativePool("rayon (a thread pool of Rust libraries)", ("rayon",), ("tokenizers",)),
)


def pools_among(names: Iterable[str]) -> list[tuple[NativePool, list[str]]]:
    """Return the pools that threads of these names belong to, each with its threads."""
    left = list(names)
    found = []
    for pool in POOLS:
        mine = [name for name in left if name.startswith(pool.threads)]
        if mine:
            found.append((pool, mine))
            left = [name for name in left if name not in mine]
    return found


# Threads of these that a fork need not copy: what is imported has them, used or not.
_OF_NO_POOL = ("polars-ooc-clea",)


def is_of_pool(name: str) -> bool:
    """Whether a thread of this name belongs to a pool that a fork breaks."""
    return not name.startswith(_OF_NO_POOL) and any(name.startswith(p.threads) for p in POOLS)


def pool_needed(name: str, used: Collection[str]) -> str:
    """Return the library that a thread of this name belongs to, if code that uses these packages
    hands work to it."""
    for pool in POOLS if is_of_pool(name) else ():
        if name.startswith(pool.threads):
            tops = {package.partition("/")[0] for package in pool.packages}
            return pool.library if tops.intersection(used) else ""
    return ""


def pool_used(names: Iterable[str], files: Collection[str]) -> tuple[NativePool, list[str]] | None:
    """Return the pool, of those among threads of these names, into whose library a stack of these
    files leads; None if there is none."""
    for pool, threads in pools_among(names):
        if any(_is_of(file, package) for file in files for package in pool.own or pool.packages):
            return pool, threads
    return None


def _is_of(file: str, package: str) -> bool:
    """Whether a file, a whole path or one from its package on, belongs to a package."""
    return file.startswith(f"{package}/") or f"-packages/{package}/" in file
