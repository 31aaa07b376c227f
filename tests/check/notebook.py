"""Notebooks for the tests: as files, the way Jupyter writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path


def write_notebook(
    path: Path, *cells: str, markdown: str = "# Title", metadata: Mapping[str, object] | None = None
) -> Path:
    """Write a notebook with one text cell first, then these code cells."""
    every: list[dict[str, object]] = [
        {"cell_type": "markdown", "metadata": {}, "source": [markdown]}
    ]
    for number, source in enumerate(cells, start=1):
        every.append(
            {
                "cell_type": "code",
                "execution_count": number,
                "metadata": {},
                "outputs": [],
                "source": source.splitlines(keepends=True),
            }
        )
    whole = {"cells": every, "metadata": dict(metadata or {}), "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path
