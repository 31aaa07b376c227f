"""Something heavy that is built for each sample, and is always the same."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..source.definitions import Function
from ..source.syntax.node_text import text_of
from ..source.view import View
from ._helpers.sample_invariants import SampleInvariants, sample_functions
from .rule import LIKELY, SLOW, Hit, Rule

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
    for samples, function in sample_functions(view):
        for call in function.calls():
            name = view.resolve(call.func) or ""
            if not _is_heavy(name):
                continue
            if _same(call, samples, function) and not samples.runs_once(call, function):
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


def _same(call: ast.Call, samples: SampleInvariants, function: Function) -> bool:
    """Whether nothing in a call depends on the sample."""
    inside = [*call.args, *(each.value for each in call.keywords)]
    return all(_part_is_same(each, samples, function) for each in inside)


def _part_is_same(node: ast.expr, samples: SampleInvariants, function: Function) -> bool:
    match node:
        case ast.Call() if (samples.view.resolve(node.func) or "").startswith(_PARTS):
            return _same(node, samples, function)  # A.Resize(224, 224)
        case ast.List() | ast.Tuple():
            return all(_part_is_same(each, samples, function) for each in node.elts)
        case _:
            return samples.is_same_for_all(node, function)


RULE = Rule(
    code="AF507",
    name="built-for-every-sample",
    severity=SLOW,
    confidence=LIKELY,
    find=find,
)
