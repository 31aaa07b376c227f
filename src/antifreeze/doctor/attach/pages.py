"""The pages of the shapes, from their own texts."""

from __future__ import annotations

from .shapes import Shape, all_shapes

INDEX = "README.md"
_LINKS = "[All ways to hang](README.md) · [My DataLoader hangs](../hangs.md)"


def pages() -> dict[str, str]:
    """Give the text of each page in docs/hangs, by its name."""
    every = {f"{each.name}.md": f"{page(each)}\n{_LINKS}\n" for each in all_shapes()}
    return {INDEX: _index(), **every}


def page(shape: Shape) -> str:
    """Give the page of a shape, without links to others."""
    return f"""# {shape.title}

`antifreeze attach PID` calls this **{shape.name}**.

{shape.what}

## How we can tell

{shape.tell}

## To get out now

{shape.get_out}

## To prevent it

{shape.prevent}
"""


def _index() -> str:
    rows = "\n".join(f"| [{each.name}]({each.name}.md) | {each.title} |" for each in all_shapes())
    return f"""# Ways to hang, or to crawl

Each is known to `antifreeze attach PID`: [how to ask](../hangs.md).

| name | what it is |
| --- | --- |
{rows}
"""
