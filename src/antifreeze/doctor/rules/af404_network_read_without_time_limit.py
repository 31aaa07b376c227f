"""A worker that reads from the network, and waits as long as the other side likes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.view import View
from ..source.worker_code import WorkerCode
from .base import FREEZE, LIKELY, POSSIBLE, Hit, Rule

_VERBS = ("get", "post", "put", "head", "patch", "delete", "options", "request")
_PASSED = ("url", "first", "second")  # what may come before the keywords of requests
# The functions that take a time limit, with the names of their positional parameters.
LIMITED = {
    "urllib.request.urlopen": ("url", "data", "timeout"),
    "socket.create_connection": ("address", "timeout"),
    "http.client.HTTPConnection": ("host", "port", "timeout"),
    "http.client.HTTPSConnection": ("host", "port"),
    "ftplib.FTP": ("host", "user", "passwd", "acct", "timeout"),
} | {f"requests.{verb}": _PASSED for verb in _VERBS}
UNLIMITED = frozenset({"urllib.request.urlretrieve", "wget.download"})  # they take none
_SESSIONS = frozenset({"requests.Session", "requests.session", "requests.sessions.Session"})


def find(view: View) -> Iterator[Hit]:
    by_default = bool(view.calls("socket.setdefaulttimeout"))
    for code in view.worker_code:
        if code.only_ours or _gives_up(code):
            continue
        for call in code.function.calls():
            name = _reads(call, view)
            if name and not (by_default and not name.startswith("requests")):
                yield Hit(
                    call,
                    f"`{name}` in `{code.function.name}` has no time limit: a server that does not"
                    " answer stops this worker, and with it the loop, for ever",
                    LIKELY if code.workers is not None else POSSIBLE,
                )


def _gives_up(code: WorkerCode) -> bool:
    """Say whether the loader itself has a time limit."""
    if code.loader is not None:
        return code.loader["timeout"].given and code.loader["timeout"].value != 0
    return code.dataset is not None and any(each.has_timeout for each in code.dataset.loaders)


def _reads(call: ast.Call, view: View) -> str:
    """Give the name of what is called, if it may wait for ever."""
    name = view.resolve(call.func)
    if name in UNLIMITED:
        return name
    if name in LIMITED:
        limit = view.call_arguments(call, LIMITED[name])["timeout"]
        return name if limit.absent or limit.is_(None) else ""
    match call.func:
        case ast.Attribute(attr=verb, value=ast.expr() as session) if verb in _VERBS:
            if view.type_of(session) not in _SESSIONS or view.method_calls("mount"):
                return ""  # an adapter may have a limit of its own
            limit = view.call_arguments(call, _PASSED)["timeout"]
            if limit.absent or limit.is_(None):
                return f"requests.Session.{verb}"
        case _:
            pass
    return ""


RULE = Rule(
    code="AF404",
    name="network-read-without-time-limit",
    severity=FREEZE,
    confidence=LIKELY,
    title="A worker reads from the network without a time limit",
    what="""
    `requests.get`, `urllib.request.urlopen`, `urlretrieve`, `socket.create_connection` and the like
    without `timeout` in code that runs in workers, and no `timeout` of the loader.
    """,
    why="""
    Unless told otherwise they wait for an answer for ever; the documentation of
    [requests](https://requests.readthedocs.io/en/latest/user/advanced/#timeouts) warns of it. One
    connection that falls silent stops its worker. Batches come in order, so the loop stops with it,
    without a word: the process is alive, and torch's loader has no time limit either
    ([pytorch#1355](https://github.com/pytorch/pytorch/issues/1355),
    [pytorch#75147](https://github.com/pytorch/pytorch/issues/75147)).
    `socket.setdefaulttimeout` helps urllib, but not requests, which takes it away again (measured
    with requests 2.34).
    """,
    instead="""
    Give every read a limit: `requests.get(url, timeout=(3, 30))`, and download what you can before
    training. `urlretrieve` takes no limit: use `urlopen(url, timeout=30)`. `DataLoader(...,
    timeout=300)` makes an error of it at least; antifreeze's loader names the sample and the line
    that a worker is stuck at, and replaces the worker (`sample_timeout`).
    """,
    not_flagged="""
    Reads with a time limit, loaders with one, and libraries that have one of their own (httpx,
    aiohttp, boto3). Sessions that adapters are mounted on. Loaders without workers.
    """,
    bad="""
import io

import requests
from PIL import Image
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self, addresses, transform):
        self.addresses = addresses
        self.transform = transform

    def __len__(self):
        return len(self.addresses)

    def __getitem__(self, index):
        answer = requests.get(self.addresses[index])
        answer.raise_for_status()
        return self.transform(Image.open(io.BytesIO(answer.content)))


def load(addresses, transform):
    return DataLoader(Pictures(addresses, transform), batch_size=8, num_workers=4)
""",
    good="""
import io

import requests
from PIL import Image
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self, addresses, transform):
        self.addresses = addresses
        self.transform = transform

    def __len__(self):
        return len(self.addresses)

    def __getitem__(self, index):
        answer = requests.get(self.addresses[index], timeout=(3, 30))
        answer.raise_for_status()
        return self.transform(Image.open(io.BytesIO(answer.content)))


def load(addresses, transform):
    return DataLoader(Pictures(addresses, transform), batch_size=8, num_workers=4)
""",
    also_bad=(
        """
from urllib import request as web

import torch.utils.data as data


def fetch(url):
    with web.urlopen(url) as answer:
        return answer.read()


class Remote(data.Dataset):
    def __init__(self, cfg):
        self.base = cfg.base_url
        self.names = cfg.names

    def __len__(self):
        return len(self.names)

    def __getitem__(self, idx):
        return fetch(f"{self.base}/{self.names[idx]}")


def get_dataloader(cfg):
    return data.DataLoader(Remote(cfg), batch_size=cfg.bs, num_workers=cfg.workers)
""",
        """
import requests
from torch.utils.data import DataLoader, Dataset


class Captions(Dataset):
    def __init__(self, keys):
        self.keys = keys
        self.session = None

    def __len__(self):
        return len(self.keys)

    def __getitem__(self, index):
        if self.session is None:
            self.session = requests.Session()
        return self.session.post("http://captions/get", json={"key": self.keys[index]}).json()


def make(keys, options):
    return DataLoader(Captions(keys), num_workers=2, **options)
""",
    ),
    also_good=(
        """
from urllib.request import urlretrieve

from torch.utils.data import DataLoader, Dataset


class Texts(Dataset):
    def __init__(self, url, path):
        urlretrieve(url, path)
        with open(path) as file:
            self.count = len(file.readlines())
        self.path = path

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        with open(self.path) as file:
            return next((line for number, line in enumerate(file) if number == index), "")


def load(url, path):
    return DataLoader(Texts(url, path), num_workers=4)
""",
        """
import requests
from torch.utils.data import DataLoader, Dataset


class Captions(Dataset):
    def __init__(self, keys):
        self.keys = keys

    def __len__(self):
        return len(self.keys)

    def __getitem__(self, index):
        return requests.get(f"http://captions/{self.keys[index]}").text


def load(keys):
    return DataLoader(Captions(keys), num_workers=4, timeout=120)
""",
    ),
    find=find,
    follows=True,
)
