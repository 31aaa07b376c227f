"""The pages of rules are Markdown files that are read strictly."""

from __future__ import annotations

import pytest

from antifreeze.doctor.rules.page_parser import BadPage, RulePage, parse_page

PROGRAM = "```python\nx = 1\n```\n"
WHOLE = f"""# A title

## What is flagged

Something,
on two lines.

## Why

- a list
- of reasons

## Instead

Another thing.

## Flagged

{PROGRAM}
## Not flagged

```python
x = 2  # a line with a # in it


# and one that looks like a heading
y = 3
```

## Also flagged

{PROGRAM}
{PROGRAM}"""


def test_a_page_becomes_what_is_written_on_it() -> None:
    assert parse_page(WHOLE, "page.md") == RulePage(
        title="A title",
        what="Something,\non two lines.",
        why="- a list\n- of reasons",
        instead="Another thing.",
        not_flagged="",
        bad="x = 1\n",
        good="x = 2  # a line with a # in it\n\n\n# and one that looks like a heading\ny = 3\n",
        also_bad=("x = 1\n", "x = 1\n"),
        also_good=(),
    )


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("# A title\n", "A title\n", 1, "the first line is not"),
        ("# A title\n", "# \n", 1, "the first line is not"),
        ("# A title\n", "# A title\n\nSome text.\n", 3, "text before the first section"),
        ("# A title\n", f"# A title\n\n{PROGRAM}", 3, "text before the first section"),
        ("## Instead\n\nAnother thing.\n\n", "", 38, "no section `## Instead`"),
        ("## Instead\n\nAnother thing.\n", "## Instead\n", 13, "'Instead' is empty"),
        ("## Instead\n", "## What to do\n", 13, "'## What to do' is not known"),
        ("## Instead\n", "### Instead\n", 13, "'### Instead' is not known"),
        ("## Instead\n", "## Why\n", 13, "'Why' is out of order or twice"),
        ("## Also flagged\n", "## What is not flagged\n", 33, "out of order or twice"),
        ("Another thing.\n", f"Another thing.\n\n{PROGRAM}", 17, "a fenced block in 'Instead'"),
        (f"## Flagged\n\n{PROGRAM}", "## Flagged\n", 17, "'Flagged' has no program"),
        (f"## Flagged\n\n{PROGRAM}", "## Flagged\n\n```python\n```\n", 19, "an empty block"),
        (f"## Flagged\n\n{PROGRAM}", f"## Flagged\n\n{PROGRAM * 2}", 17, "takes one program"),
        (f"## Flagged\n\n{PROGRAM}", "## Flagged\n\n```\nx\n```\n", 19, "not in a block"),
        (f"## Flagged\n\n{PROGRAM}", f"## Flagged\n\nThis:\n{PROGRAM}", 19, "not in a block"),
        ("y = 3\n```\n", "y = 3\n", 25, "has no end"),
    ],
)
def test_a_page_with_a_fault_is_refused_with_its_line(
    old: str, new: str, line: int, words: str
) -> None:
    assert WHOLE.count(old) == 1 or old == "# A title\n"
    with pytest.raises(BadPage, match=rf"^page\.md:{line}: ") as raised:
        parse_page(WHOLE.replace(old, new, 1), "page.md")
    assert words in str(raised.value)
