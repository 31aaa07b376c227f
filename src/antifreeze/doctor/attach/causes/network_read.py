"""Somebody waits for an answer of the network, and none comes."""

from __future__ import annotations

from collections.abc import Iterator

from ...._linux.syscalls import Syscall
from ...findings import Confidence, Finding
from ..analyse.library_files import EVENT_LOOP, FUTURE, LOADER
from ..analyse.lock_waits import Wait, wait_of
from ..analyse.threads_and_processes import Program, Role, WatchedProcess, WatchedThread
from ..analyse.waits import at_line, in_sample, loop_waits, polls, user_line
from ..analyse.workers_by_loader import and_the_loop_waits
from .base import LIKELY, POSSIBLE, Cause, interrupt_at_line, kill_worker, names_of, plural

NAME = "network-read"
# Library code that waits for one connection: with a time limit of the socket it polls.
_SOCKET_FILES = ("ssl.py", "socket.py", "http/client.py", "urllib/request.py")
_CLIENTS = (
    "aiohttp/", "botocore/", "boto3/", "s3fs/", "gcsfs/", "fsspec/", "google/", "grpc/",
    "httpcore/", "httpx/", "huggingface_hub/", "paramiko/", "psycopg", "pymongo/", "pymysql/",
    "redis/", "requests/", "urllib3/",
)  # fmt: skip
_NATIVE = ("sock_recv", "sock_connect", "internal_connect", "sock_call", "SSL_read", "SSL_connect",
           "SSL_do_handshake", "PySSL_", "_ssl__SSLSocket", "getaddrinfo", "send_dg", "PQexec",
           "PQgetResult", "curl_")  # fmt: skip
_NAMES = ("getaddrinfo", "send_dg", "gethostbyname")
# What polls as well, and has a cause of its own, or none.
_NOT_THE_NETWORK = ("multiprocessing/", "torch/distributed/", LOADER,
                    "subprocess.py", "queue.py")  # fmt: skip


def find(program: Program) -> Iterator[Finding]:
    found = [
        (process, thread, *said)
        for process in _asked(program)
        if (thread := _who_waits(process)) is not None
        and thread.stuck
        and (said := _peer(process, thread)) is not None
    ]
    by_confidence: dict[Confidence, list[tuple[WatchedProcess, WatchedThread, str]]] = {}
    for process, thread, peer, confidence in found:
        by_confidence.setdefault(confidence, []).append((process, thread, peer))
    for confidence, waiting in by_confidence.items():
        yield _finding(program, confidence, waiting)


def _asked(program: Program) -> tuple[WatchedProcess, ...]:
    """Return those whose waiting matters: workers only while the loop waits for them."""
    if not loop_waits(program):
        return () if program.at_prompt else (program.main,)
    return tuple(each for each in program.living if in_sample(program, each) or not program.seen)


def _who_waits(process: WatchedProcess) -> WatchedThread | None:
    """Return the thread that goes on with the work: the main one, or that which it waits for."""
    main = process.main
    if main is None or wait_of(main) not in (Wait.THREAD, Wait.RESULT):
        return main
    others = [each for each in process.threads if each is not main and each.own_line is not None]
    reads = [each for each in others if "->" in each.descriptor()]
    return reads[0] if reads and all(each.stuck for each in others) else main


def _peer(process: WatchedProcess, thread: WatchedThread) -> tuple[str, Confidence] | None:
    """Return whose answer a thread waits for; None if it does not wait for the network."""
    target = thread.descriptor()
    if "(listening)" in target and thread is process.main and process.role is Role.MAIN:
        return None  # a server, which waits for whoever comes
    if target.startswith(("tcp", "udp")):
        return _words(target, connects=thread.now.call[0] == Syscall.CONNECT), LIKELY
    if any(each.file.startswith(_NOT_THE_NETWORK) for each in thread.frames[:3]):
        return None
    if thread.calls("_run_once", EVENT_LOOP) is not None and _serves(process):
        return None
    peers = connections(process, thread)
    if not peers and _knows_descriptors(process):
        return None  # without a connection it is not the network
    if thread.in_native(*_NAMES) is not None or thread.calls("getaddrinfo", "socket.py"):
        server = next((each for each in peers if each.endswith(":53")), "")
        return f"the name server{' ' + _other_end(server) if server else ''}", LIKELY
    if _in_a_client(thread) and polls(thread):
        return _likeliest(peers), LIKELY if peers else POSSIBLE
    if _loop_waits_for_network(process, thread):
        return _likeliest(peers), LIKELY if peers else POSSIBLE
    if polls(thread) and len(peers) == 1 and thread.at is not None:
        return _words(peers[0], connects="connecting" in peers[0]), POSSIBLE
    return None


def _in_a_client(thread: WatchedThread) -> bool:
    if thread.in_native(*_NATIVE) is not None:
        return True
    inner = thread.at
    if inner is None:
        return False
    return inner.file in _SOCKET_FILES or _is_client(thread)


def _is_client(thread: WatchedThread) -> bool:
    """Whether a client's code is below the user's own."""
    mine = user_line(thread)
    for each in thread.frames:
        if each == mine and not each.file.startswith(_CLIENTS):
            return False
        if each.file.startswith(_CLIENTS):
            return True
    return False


def _loop_waits_for_network(process: WatchedProcess, thread: WatchedThread) -> bool:
    """Whether an event loop, of this thread or of another that it waits for, has open
    connections and nothing comes."""
    if thread.calls("_run_once", EVENT_LOOP) is not None:
        # One that runs for ever is a server's, and waits for whoever comes.
        waits = polls(thread) and thread.calls("run_until_complete", EVENT_LOOP) is not None
        return waits and bool(connections(process, thread))
    if not _is_client(thread) and thread.calls("result", FUTURE) is None:
        return False
    return any(
        each is not thread
        and each.calls("_run_once", EVENT_LOOP) is not None
        and polls(each)
        and each.stuck
        and connections(process, each)
        for each in process.threads
    )


def _serves(process: WatchedProcess) -> bool:
    """Whether a main process is a server, or a notebook's: it waits for whoever comes, and not for
    an answer."""
    listens = any("(listening)" in each.target for each in process.now.descriptors)
    return process.role is Role.MAIN and listens


def connections(process: WatchedProcess, thread: WatchedThread) -> list[str]:
    """Return the connections that a thread may wait for: those of its process, or those that it
    watches, where that is known of an event loop."""
    mine = thread.calls("_run_once", EVENT_LOOP) is not None and thread.now.watches
    found = (
        each.target
        for each in process.now.descriptors
        if not mine or each.number in thread.now.watches
    )
    return list(
        dict.fromkeys(each for each in found if each.startswith(("tcp", "udp")) and "->" in each)
    )


def _knows_descriptors(process: WatchedProcess) -> bool:
    """Whether all open files of a process were seen."""
    seen = len(process.now.descriptors)
    return 0 < seen >= process.now.open_files


def _likeliest(peers: list[str]) -> str:
    peers = [each for each in peers if each.startswith("tcp")] or peers
    if not peers:
        return "a server"
    if len(peers) == 1:
        return _words(peers[0], connects="connecting" in peers[0])
    named = [_other_end(each) for each in peers]
    return f"one of {', '.join(dict.fromkeys(named[:4]))}"


def _words(target: str, *, connects: bool) -> str:
    if "listening" in target:
        return f"somebody to connect to it ({target})"
    peer = _other_end(target)
    if connects:
        return f"{peer} to accept a connection"
    return f"{peer}, which has closed it" if "closed by" in target else peer


def _other_end(target: str) -> str:
    return target.partition("-> ")[2].partition(" ")[0] or target


def _finding(
    program: Program,
    confidence: Confidence,
    waiting: list[tuple[WatchedProcess, WatchedThread, str]],
) -> Finding:
    processes = [process for process, _, _ in waiting]
    peers = list(dict.fromkeys(peer for _, _, peer in waiting))
    main = processes[0] is program.main
    _, first, _ = waiting[0]
    loop = "" if main else and_the_loop_waits(program, processes)
    who = names_of(processes)
    if main and first is not program.main.main:
        who = f"thread {first.now.name!r} of {who}"
        loop = ", and the main thread waits for this thread"
    sure = "" if confidence is LIKELY else "perhaps "
    return Finding(
        NAME,
        confidence,
        f"{who} {plural(processes, 'waits', 'wait')} {sure}for {' and '.join(peers[:3])} over"
        f" the network, {at_line(first)}: nothing has come between two looks{loop}",
        evidence=(
            *(
                f"{process.label}: no CPU and no byte in {program.seconds:.1f} s,"
                f" {thread.descriptor() or thread.now.waits_in or 'waiting for a socket'},"
                f" under {thread.at}"
                for process, thread, _ in waiting[:4]
            ),
            "two looks cannot tell a slow server from one that never answers: look again in a"
            " minute",
        ),
        get_out=(
            f"see whether it answers: ss -tunp | grep pid={processes[0].pid}    (changes nothing)",
            interrupt_at_line(program.main) if main else kill_worker(processes),
        ),
        prevent=(
            "give every request a time limit and a retry: requests.get(..., timeout=30),"
            " urlopen(..., timeout=30), socket.setdefaulttimeout(30) in worker_init_fn",
            "copy what is read often to a local disk first",
        ),
        pids=tuple(process.pid for process in processes),
    )


CAUSE = Cause(NAME, find, may_be_slow=True)
