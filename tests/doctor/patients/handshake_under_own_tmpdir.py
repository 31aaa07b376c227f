"""A folder for temporary files that the script has chosen itself, and that was removed.

expects: handshake-under-missing-tmpdir
"""

import os
import shutil
import sys
import tempfile

import torch
from torch.utils.data import DataLoader, Dataset

os.environ["TMPDIR"] = os.path.join(sys.argv[1], "scratch")
os.makedirs(os.environ["TMPDIR"])


class Images(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.zeros(3, 20, 20)


shutil.rmtree(tempfile.gettempdir())
print("begins", flush=True)
for _ in DataLoader(Images(), batch_size=4, num_workers=2):
    pass
