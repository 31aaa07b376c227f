"""The pages of docs/hangs, and of `antifreeze explain`: made of those of the causes."""

from __future__ import annotations

from .causes import Cause, all_causes

INDEX = "README.md"
_LINKS = "[All ways to hang](README.md) · [My DataLoader hangs](../hangs.md)"


def pages() -> dict[str, str]:
    """Return the text of each page in docs/hangs, by its name."""
    every = {f"{each.name}.md": f"{page(each)}\n{_LINKS}\n" for each in all_causes()}
    return {INDEX: _index(), **every}


def page(cause: Cause) -> str:
    """Return the page of a cause, without links to others."""
    found = cause.page
    return f"""# {found.title}

`antifreeze attach PID` calls this **{cause.name}**.

{found.what}

## How we can tell

{found.tell}

## To get out now

{found.get_out}

## To prevent it

{found.prevent}
"""


def _index() -> str:
    rows = "\n".join(f"| [{each.name}]({each.name}.md) | {each.title} |" for each in all_causes())
    return f"""# Ways to hang, or to crawl

Each is known to `antifreeze attach PID`: [how to ask](../hangs.md).

| name | what it is |
| --- | --- |
{rows}
"""
