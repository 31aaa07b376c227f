"""A program that computes in numba's parallel threads."""

import os

import numba
import numpy as np
import two_epochs

numba.config.THREADING_LAYER = os.environ["NUMBA_LAYER"]


@numba.njit("float64(float64[:])", parallel=True)
def total(values):
    found = 0.0
    for place in numba.prange(values.shape[0]):
        found += values[place]
    return found


def count(index):
    return int(total(np.ones(1000 + index)))


class Used(two_epochs.Job):
    def __getitem__(self, index):
        return count(index)


class Late(two_epochs.Job):
    def __getitem__(self, index):
        if index < two_epochs.LATE:
            return index
        import numba

        return count(index) + numba.get_num_threads() * 0


if __name__ == "__main__":
    cases = {"used": Used, "late": Late, "persistent": Used, "imported": Used}
    two_epochs.run(count, cases)
