"""Source as text again, for words and for comparing."""

from __future__ import annotations

import ast


def text_of(node: ast.AST) -> str:
    """Give a node as source; "..." if it is nested deeper than Python follows: a sum of thousands
    of terms parses, and `ast.unparse` fails on it."""
    try:
        return ast.unparse(node)
    except RecursionError:
        return "..."


def last_name(node: ast.AST) -> str:
    """Give the last name of `a.b.name`; '' if it is no name."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""
