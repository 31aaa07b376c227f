"""A program that groups with polars."""

import polars as pl
from two_epochs import LATE, Job, run


def total(index):
    grouped = pl.DataFrame({"a": range(1000)}).lazy().group_by((pl.col("a") % 7).alias("k"))
    return int(grouped.agg(pl.col("a").sum()).sort("k").collect()["a"][index % 7])


class Used(Job):
    def __getitem__(self, index):
        return total(index)


class Late(Job):
    def __getitem__(self, index):
        if index < LATE:
            return index
        import polars

        frame = polars.DataFrame({"a": range(1000)}).lazy()
        grouped = frame.group_by((polars.col("a") % 7).alias("k")).agg(polars.col("a").sum())
        return int(grouped.sort("k").collect()["a"][index % 7])


class ByModule(Job):
    def __getitem__(self, index):
        if index < LATE:
            return index
        import groups

        return groups.total(index)


if __name__ == "__main__":
    cases = {"used": Used, "late": Late, "by module": ByModule}
    run(total, {**cases, "persistent": Used, "imported": Used})
