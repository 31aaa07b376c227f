"""Render docs/rules, `antifreeze explain` and the advice below a finding from the rules' pages."""

from __future__ import annotations

import functools
import re
import textwrap

from . import all_rules
from .rule import GROUPS, Rule

INDEX = "README.md"
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`])|\n\n")
_LINKS = "[All rules](README.md) · [How to check](../check.md)"


def pages() -> dict[str, str]:
    """Return the text of each page in docs/rules, by its name."""
    every = {file_name(each): f"{page(each)}\n{_LINKS}\n" for each in all_rules()}
    return {INDEX: _index(), **every}


def file_name(rule: Rule) -> str:
    return f"{rule.code.lower()}-{rule.name}.md"


def page(rule: Rule) -> str:
    """Return the page of a rule, without links to others."""
    own = rule.page
    opinion = " An opinion: off unless it is selected." if rule.opinion else ""
    fine = f"\n## What is not flagged\n\n{flow(own.not_flagged)}\n" if own.not_flagged else ""
    return f"""# {rule.code}: {own.title}

`{rule.name}`: {rule.severity.value}; {rule.confidence.value}. About {rule.group}.{opinion}

{flow(own.what)}

## Why

{flow(own.why)}

## Instead

{flow(own.instead)}
{fine}
## Flagged

```python
{own.bad.strip()}
```

## Not flagged

```python
{own.good.strip()}
```

To allow it at one place: `# antifreeze: allow[{rule.name}]`.
"""


def advice(rule: Rule) -> str:
    """Return the first sentence of what to do instead: one line below a finding."""
    return _first_sentence(rule.page.instead)


@functools.cache  # every finding asks for it
def _first_sentence(text: str) -> str:
    return _SENTENCE_END.split(flow(text), maxsplit=1)[0]


def flow(text: str) -> str:
    """Return a text with each paragraph on one line; lists keep their lines."""
    paragraphs = textwrap.dedent(text).strip().split("\n\n")
    return "\n\n".join(
        each if each.startswith(("-", "|", "```")) else " ".join(each.split())
        for each in paragraphs
    )


def _index() -> str:
    parts = []
    for digit, title in GROUPS.items():
        rules = [each for each in all_rules() if each.code[2] == digit]
        if rules:
            rows = "\n".join(
                f"| [{each.code}]({file_name(each)}) | `{each.name}` | {each.severity.value} |"
                f" {each.title} |"
                for each in rules
            )
            head = f"## AF{digit}xx: {title}\n\n| code | name | severity | what |"
            parts.append(f"{head}\n| --- | --- | --- | --- |\n{rows}\n")
    return "# The rules of `antifreeze check`\n\n[How to check](../check.md)\n\n" + "\n".join(parts)
