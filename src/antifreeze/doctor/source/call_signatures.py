"""Whether a call fits the signature of a function."""

from __future__ import annotations

import ast

from .syntax.scopes import FunctionNode


def signature_mismatch(call: ast.Call, function: FunctionNode, *, bound: bool) -> str:
    """Return in Python's words why a call cannot work: "missing 1 required argument: 'path'".

    Empty if it may work: also where `*args` or `**kwargs` hide what is passed. `bound`: the first
    parameter is `self` and not passed.
    """
    arguments = function.args
    takes = [*arguments.posonlyargs, *arguments.args][1 if bound else 0 :]
    if any(isinstance(each, ast.Starred) for each in call.args):
        return ""
    if any(keyword.arg is None for keyword in call.keywords):
        return ""
    if len(call.args) > len(takes) and arguments.vararg is None:
        many = "s" * (len(takes) != 1)
        return f"takes {len(takes)} positional argument{many}, gets {len(call.args)}"
    by_name = {each.arg for each in takes if each not in arguments.posonlyargs}
    by_name |= {each.arg for each in arguments.kwonlyargs}
    given = {takes[place].arg for place in range(min(len(call.args), len(takes)))}
    for keyword in call.keywords:
        assert keyword.arg is not None
        if keyword.arg not in by_name:
            if arguments.kwarg is None:
                return f"takes no argument {keyword.arg!r}"
            continue  # in **options, also beside a parameter of that name before the `/`
        if keyword.arg in given:
            return f"gets {keyword.arg!r} twice"
        given.add(keyword.arg)
    missing = [each for each in _required(function, bound=bound) if each not in given]
    if missing:
        return f"lacks {', '.join(repr(each) for each in missing)}"
    return ""


def _required(function: FunctionNode, *, bound: bool) -> list[str]:
    arguments = function.args
    plain = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
    needed = plain[: len(plain) - len(arguments.defaults)][1 if bound else 0 :]
    for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if default is None:
            needed.append(each.arg)
    return needed
