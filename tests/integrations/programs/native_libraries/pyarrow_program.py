"""A program that reads Parquet with pyarrow: its pools for computing and for reading."""

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import two_epochs

PATH = "numbers.parquet"


def read(index):
    found = ds.dataset(PATH).to_table(filter=pc.field("a") > index).num_rows
    return pc.sum(pq.read_table(PATH)["a"]).as_py() + found


class Used(two_epochs.Job):
    def __getitem__(self, index):
        return read(index)


class Late(two_epochs.Job):
    def __getitem__(self, index):
        if index < two_epochs.LATE:
            return index
        import pyarrow.parquet

        return pyarrow.parquet.read_table(PATH)["a"][index].as_py()


if __name__ == "__main__":
    numbers = pa.table({"a": list(range(20_000)), "b": [1.0] * 20_000})
    pq.write_table(numbers, PATH, row_group_size=5_000)
    cases = {"used": Used, "late": Late, "persistent": Used, "imported": Used}
    two_epochs.run(read, cases)
