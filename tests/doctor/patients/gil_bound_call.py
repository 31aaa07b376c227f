"""One call of C code in a thread of the main process keeps the GIL; the loop stands still.

expects: gil-bound
"""

import re
import threading

from torch.utils.data import DataLoader


def parse() -> None:
    re.match(r"(a+)+$", "a" * 40 + "b")


loader = DataLoader(range(1_000_000), batch_size=4, num_workers=2)
for number, _ in enumerate(loader):
    if number == 10:
        print("begins", flush=True)
        threading.Thread(target=parse, name="parser", daemon=True).start()
