"""A module of a program's own that uses polars, and is first imported in a worker."""

import polars as pl


def total(index):
    grouped = pl.DataFrame({"a": range(1000)}).lazy().group_by((pl.col("a") % 7).alias("k"))
    return int(grouped.agg(pl.col("a").sum()).sort("k").collect()["a"][index % 7])
