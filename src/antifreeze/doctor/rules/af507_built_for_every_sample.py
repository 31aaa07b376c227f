"""Something heavy that is built for each sample, and is always the same."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.definitions import DatasetKind, Function
from ..source.view import View
from ..source.wording import text_of
from .base import LIKELY, SLOW, Hit, Rule
from .unvarying import Samples

BUILDERS = frozenset(
    {
        "albumentations.Compose",
        "timm.create_model",
        "torch.hub.load",
        "spacy.load",
        "torch.jit.load",
    }
    | {"tiktoken.get_encoding", "tiktoken.encoding_for_model", "whisper.load_model"}
    | {"onnxruntime.InferenceSession", "cv2.CascadeClassifier", "clip.load"}
    | {"sentencepiece.SentencePieceProcessor", "sentence_transformers.SentenceTransformer"}
    | {"albumentations.from_dict", "albumentations.load", "transformers.pipeline"}
    | {f"torchaudio.transforms.{each}" for each in ("MelSpectrogram", "MFCC", "Resample", "LFCC")}
)
_FACTORIES = ("transformers.", "tokenizers.", "torchvision.models.")
_PARTS = ("albumentations.", "torchvision.", "torch.nn.")


def find(view: View) -> Iterator[Hit]:
    for dataset in view.datasets:
        if dataset.kind is not DatasetKind.MAP:
            continue
        samples = Samples(dataset, view)
        for function in dataset.loading:
            if not view.module.holds(function.node):
                continue
            for call in function.calls():
                name = view.resolve(call.func) or ""
                if not _is_heavy(name):
                    continue
                if _same(call, samples, function) and not samples.once(call, function):
                    yield Hit(
                        call,
                        f"`{text_of(call.func)}` in `{function.name}` builds the same thing"
                        " again for every sample",
                    )


def _is_heavy(name: str) -> bool:
    if name in BUILDERS:
        return True
    last = name.rpartition(".")[2]
    if name.startswith("torchvision.models."):
        return last.islower() and not last.startswith("get_")
    return name.startswith(_FACTORIES) and last in ("from_pretrained", "from_file")


def _same(call: ast.Call, samples: Samples, function: Function) -> bool:
    """Say whether nothing in a call depends on the sample."""
    inside = [*call.args, *(each.value for each in call.keywords)]
    return all(_part_is_same(each, samples, function) for each in inside)


def _part_is_same(node: ast.expr, samples: Samples, function: Function) -> bool:
    match node:
        case ast.Call() if (samples.view.resolve(node.func) or "").startswith(_PARTS):
            return _same(node, samples, function)  # A.Resize(224, 224)
        case ast.List() | ast.Tuple():
            return all(_part_is_same(each, samples, function) for each in node.elts)
        case _:
            return samples.same(node, function)


RULE = Rule(
    code="AF507",
    name="built-for-every-sample",
    severity=SLOW,
    confidence=LIKELY,
    title="Something heavy is built anew for every sample",
    what="""
    `__getitem__`, or what it calls, builds a tokenizer, a model, an Albumentations pipeline or a
    spectrogram transform, from arguments that do not depend on the sample.
    """,
    why="""
    It costs more than it does. `albumentations.Compose` of four transforms takes 3.2 ms to build
    (Albumentations 2.0.8, measured), which checks every argument; a tokenizer or a model is read
    from disk each time, and `from_pretrained` may ask the network first.
    """,
    instead="""
    Build it in `__init__`, and use it in `__getitem__`. What cannot be sent to workers or does not
    survive a fork: at first use (`if self.tokenizer is None`), or `antifreeze.per_worker`.
    """,
    not_flagged="""
    What depends on the sample, what is built at first use and kept, and what is cheap to build:
    a `Compose` of torchvision, `re.compile`.
    """,
    bad="""
from torch.utils.data import DataLoader, Dataset
from transformers import AutoTokenizer


class Texts(Dataset):
    def __init__(self, texts):
        self.texts = texts

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased")
        return tokenizer(self.texts[index], max_length=64, padding="max_length")["input_ids"]


def load(texts):
    return DataLoader(Texts(texts), batch_size=8, num_workers=4)
""",
    good="""
from torch.utils.data import DataLoader, Dataset
from transformers import AutoTokenizer


class Texts(Dataset):
    def __init__(self, texts):
        self.texts = texts
        self.tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased")

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        return self.tokenizer(self.texts[index], max_length=64, padding="max_length")["input_ids"]


def load(texts):
    return DataLoader(Texts(texts), batch_size=8, num_workers=4)
""",
    also_bad=(
        """
import albumentations as A
import cv2
from albumentations.pytorch import ToTensorV2
from torch.utils.data import Dataset


class Pictures(Dataset):
    def __init__(self, cfg):
        self.paths = cfg.paths
        self.size = cfg.size

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, idx):
        image = cv2.imread(self.paths[idx])
        return self.augment(image)

    def augment(self, image):
        pipeline = A.Compose([A.Resize(self.size, self.size), A.HorizontalFlip(), ToTensorV2()])
        return pipeline(image=image)["image"]
""",
        """
import torchaudio
import torchaudio.transforms as T
import torch.utils.data as data

RATE = 16_000


class Speech(data.Dataset):
    def __init__(self, files):
        self.files = files

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        wave, _ = torchaudio.load(self.files[i])
        return T.MelSpectrogram(sample_rate=RATE, n_mels=80)(wave)
""",
    ),
    also_good=(
        """
import torchaudio
from torch.utils.data import Dataset


class Speech(Dataset):
    def __init__(self, files):
        self.files = files

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        wave, rate = torchaudio.load(self.files[index])
        return torchaudio.transforms.Resample(rate, 16_000)(wave)
""",
        """
import tiktoken
from torch.utils.data import Dataset
from torchvision import transforms


class Texts(Dataset):
    def __init__(self, texts, images):
        self.texts = texts
        self.images = images
        self.encoding = None

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        if self.encoding is None:
            self.encoding = tiktoken.get_encoding("gpt2")
        shrink = transforms.Compose([transforms.Resize(224), transforms.ToTensor()])
        return self.encoding.encode(self.texts[index]), shrink(self.images[index])
""",
    ),
    find=find,
)
