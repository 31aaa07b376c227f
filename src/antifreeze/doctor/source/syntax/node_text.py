"""Turn nodes into text and names, for messages and for comparing."""

from __future__ import annotations

import ast
import re

# Words of names: the parts between underscores, and humps; `valloader` is one, `interval` is none.
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_EVALUATION = re.compile(
    r"(val|valid|validat(e|ion|ing|or)|tests?|testing|eval(s|uat(e|ion|ing|or))?"
    r"|predict(s|ions?|ing|or)?|infer(s|ence|ring)?)"
    r"((data)?(loaders?|sets?)|data|dls?|ds|iter|gen|generator|sampler|split|batch(es)?)?"
)


def text_of(node: ast.AST) -> str:
    """Return a node as source; "..." if it is nested deeper than Python follows: a sum of thousands
    of terms parses, and `ast.unparse` fails on it."""
    try:
        return ast.unparse(node)
    except RecursionError:
        return "..."


def last_name(node: ast.AST) -> str:
    """Return the last name of `a.b.name`; '' if it is no name."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def mentions_evaluation(names: str) -> bool:
    """Whether a word in some names is one of validation or tests: `val_loader`, `testSet`."""
    return any(_EVALUATION.fullmatch(part.lower()) for part in _PARTS.findall(names))
