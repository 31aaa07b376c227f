"""The pages of the shapes, from their own texts."""

from __future__ import annotations

from .shapes import Shape, all_shapes

INDEX = "README.md"


def pages() -> dict[str, str]:
    """Give the text of each page in docs/hangs, by its name."""
    return {INDEX: _index(), **{f"{each.name}.md": _page(each) for each in all_shapes()}}


def _page(shape: Shape) -> str:
    return f"""# {shape.title}

`antifreeze attach PID` calls this **{shape.name}**.

{shape.what}

## How we can tell

{shape.tell}

## To get out now

{shape.get_out}

## To prevent it

{shape.prevent}

[All ways to hang](README.md) · [My DataLoader hangs](../hangs.md)
"""


def _index() -> str:
    rows = "\n".join(f"| [{each.name}]({each.name}.md) | {each.title} |" for each in all_shapes())
    return f"""# Ways to hang, or to crawl

Each is known to `antifreeze attach PID`: [how to ask](../hangs.md).

| name | what it is |
| --- | --- |
{rows}
"""
