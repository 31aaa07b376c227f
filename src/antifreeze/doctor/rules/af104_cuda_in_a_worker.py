"""Samples that are put on a GPU by a worker."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.definitions import PICKLING
from ..source.view import View
from ..source.wording import text_of
from ..source.worker_code import WorkerCode
from .base import CRASH, LIKELY, POSSIBLE, Hit, Rule
from .devices import puts_on_cuda

_ROLES = {
    "sample": "while it loads a sample",
    "transform": "while it loads a sample",
    "collate": "in the collate function",
}


def find(view: View) -> Iterator[Hit]:
    for code in view.worker_code:
        if code.only_ours or _is_sent(code, view) or _asks_where_it_is(code):
            continue
        role = _ROLES.get(code.role, "when it starts")
        for call in code.function.calls():
            if puts_on_cuda(call, view):
                yield Hit(
                    call,
                    f"`{_short(call)}` uses the GPU in a worker, {role}: a forked worker cannot,"
                    " once the main process has",
                    LIKELY if code.workers is not None and not _depends(call, view) else POSSIBLE,
                )
            elif _to_some_device(call):
                words = f"`{_short(call)}` in a worker, {role}: it cannot be a GPU there"
                yield Hit(call, words, POSSIBLE)


def _is_sent(code: WorkerCode, view: View) -> bool:
    if code.loader is not None:
        return code.loader.start_method in PICKLING
    return code.dataset is not None and bool(view.sent_by(code.dataset))


def _asks_where_it_is(code: WorkerCode) -> bool:
    """Say whether it asks if it runs in a worker at all."""
    return any(
        isinstance(each, ast.Call) and text_of(each.func).endswith("get_worker_info")
        for each in code.function.nodes()
    )


def _depends(call: ast.Call, view: View) -> bool:
    """Say whether an `if` around it asks for the device, other than whether there is a GPU."""
    tests = [text_of(e.test) for e in view.module.ancestors(call) if isinstance(e, ast.If)]
    return any("device" in test and "is_available" not in test for test in tests)


def _to_some_device(call: ast.Call) -> bool:
    match call:
        case ast.Call(func=ast.Attribute(attr="to"), args=[ast.Name() | ast.Attribute() as device]):
            return text_of(device).endswith("device")
        case _:
            return False


def _short(call: ast.Call) -> str:
    text = text_of(call)
    return text if len(text) <= 50 else f"{text[:47]}..."


RULE = Rule(
    code="AF104",
    name="cuda-in-a-worker",
    severity=CRASH,
    confidence=LIKELY,
    title="A worker puts samples on the GPU",
    what="""
    `.cuda()`, `.to("cuda")`, `device="cuda"` and the like in what runs in workers: `__getitem__`
    and what it calls, the collate function, `worker_init_fn`.
    """,
    why="""
    CUDA does not survive a fork. As soon as the main process has used it (the model is on the GPU),
    each worker fails with `Cannot re-initialize CUDA in forked subprocess`
    ([pytorch#40403](https://github.com/pytorch/pytorch/issues/40403), closed as expected;
    [pytorch#77159](https://github.com/pytorch/pytorch/issues/77159)). Under spawn it works, but
    every worker takes some hundred MB of the GPU for its own context.
    """,
    instead="""
    Return tensors of the CPU, and move the whole batch in the loop: `batch.to("cuda",
    non_blocking=True)`, with `pin_memory=True` in the loader.
    """,
    not_flagged="""
    Loaders without workers; workers started by spawn or forkserver; code that asks
    `get_worker_info()` first. A device that only the running program knows is shown with
    `--confidence possible`.
    """,
    bad="""
import torch
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __len__(self):
        return 100

    def __getitem__(self, index):
        return torch.tensor([index]).cuda()


def load():
    return DataLoader(Numbers(), batch_size=10, num_workers=2)
""",
    good="""
import torch
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __len__(self):
        return 100

    def __getitem__(self, index):
        return torch.tensor([index])


def load():
    for batch in DataLoader(Numbers(), batch_size=10, num_workers=2, pin_memory=True):
        yield batch.to("cuda", non_blocking=True)
""",
    also_bad=(
        """
from transformers import Trainer, TrainingArguments


class Collator:
    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def __call__(self, rows):
        batch = self.tokenizer([row["text"] for row in rows], return_tensors="pt")
        return {key: value.to("cuda") for key, value in batch.items()}


def train(model, tokenizer, rows):
    arguments = TrainingArguments("out", dataloader_num_workers=4)
    collator = Collator(tokenizer)
    Trainer(model=model, args=arguments, train_dataset=rows, data_collator=collator).train()
""",
        """
import torch
from torch.utils.data import DataLoader
from torchvision import datasets, transforms


def to_gpu(tensor):
    return tensor.to("cuda")


def load():
    steps = transforms.Compose([transforms.ToTensor(), to_gpu])
    return DataLoader(datasets.CIFAR10("data", transform=steps), batch_size=8, num_workers=2)
""",
        """
from functools import partial

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader


def move(tensor, device):
    return tensor.to(device)


def pad(samples, device):
    return move(pad_sequence(samples, batch_first=True), device)


def load(dataset):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    collate = partial(pad, device=device)
    return DataLoader(dataset, batch_size=16, collate_fn=collate, num_workers=2)
""",
        """
import argparse

import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as T

device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")


class Pairs(Dataset):
    def __init__(self, left, right):
        self.left, self.right = left, right
        self.to_tensor = T.ToTensor()

    def __len__(self):
        return len(self.left)

    def __getitem__(self, idx):
        return self.read(self.left[idx]), self.read(self.right[idx])

    def read(self, path):
        picture = Image.open(path).convert("RGB")
        return self.to_tensor(picture).to(device)


def main(left, right):
    parser = argparse.ArgumentParser()
    parser.add_argument("--num-workers", type=int, default=4)
    opt = parser.parse_args()
    loader = DataLoader(Pairs(left, right), batch_size=16, num_workers=opt.num_workers)
    for a, b in loader:
        print((a - b).abs().mean())
""",
        """
import torch
from torch.utils.data import DataLoader, default_collate


class Trainer:
    def __init__(self, dataset, rank):
        self.device = f"cuda:{rank}"
        self.loader = DataLoader(dataset, batch_size=32, num_workers=8, collate_fn=self.collate)

    def collate(self, samples):
        batch = default_collate(samples)
        return {key: value.to(self.device) for key, value in batch.items()}

    def fit(self, model):
        for batch in self.loader:
            model(batch)
""",
        """
import torch
from torch.utils.data import DataLoader, Dataset


class Waves(Dataset):
    def __init__(self, count, device="cuda"):
        self.count = count
        self.device = device

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.randn(16_000, device=self.device)


train_loader = DataLoader(Waves(1000), batch_size=8, num_workers=2, shuffle=True)
""",
    ),
    also_good=(
        """
import torch
from torch.utils.data import DataLoader, default_collate

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def collate(samples):
    return tuple(each.to(device) for each in default_collate(samples))


def load(dataset):
    return DataLoader(dataset, batch_size=32, collate_fn=collate, num_workers=0)
""",
        """
import torch
from torch.utils.data import DataLoader, Dataset


class Embedded(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        known = torch.load(self.paths[index], map_location="cpu")
        return known.to(torch.float32).to("cpu")

    def embed(self, model, batch):
        return model(batch.cuda())


def load(paths):
    return DataLoader(Embedded(paths), batch_size=8, num_workers=4)
""",
    ),
    find=find,
    follows=True,
)
