"""One small program for each failure that no other test shows in a process of its own."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .watched import Ending

DATA, ERROR, WARNING, SAID = "data", "error", "warning", "said"


@dataclass(frozen=True, slots=True)
class Program:
    """A program, how it has to end, and words that stderr must have.

    `data`: it checks its own data, and says so. `error`: it ends with a traceback whose words name
    the culprit. `warning`: data and the words. `said`: it may go on waiting, after the words.
    """

    name: str
    ends: str
    words: tuple[str, ...]
    code: str

    def objections(self, ending: Ending) -> list[str]:
        """List what is wrong with how it ended."""
        found = [f"not said: {each}" for each in self.words if not re.search(each, ending.err)]
        if ending.left:
            found.append("processes left behind")
        if self.ends == SAID:
            return found
        if ending.code is None:
            found.append("it hangs")
        elif self.ends == ERROR:
            if ending.code != 1:
                found.append(f"ended with code {ending.code}")
        elif ending.code != 0 or "right" not in ending.out:
            found.append("not the right data")
        if self.ends == DATA and "Traceback" in ending.err:
            found.append("a traceback on the way")
        return found


PROGRAMS = [
    # ---- A: handing over
    Program(
        "a generator in a batch, spawned workers",
        ERROR,
        (r'batch\["later"\]\[1\] is a generator', r"samples 12, 13, 14, 15"),
        """
        class Later(Numbers):
            def __getitem__(self, index):
                return {"x": index, "later": (n for n in range(3)) if index == 13 else None}
        def collate(samples):
            return {key: [sample[key] for sample in samples] for key in samples[0]}
        arguments = {"collate_fn": collate, "multiprocessing_context": "spawn"}
        for _ in DataLoader(Later(), 4, num_workers=2, **arguments):
            pass
        """,
    ),
    Program(
        "a tensor with a history, in a list",
        WARNING,
        (r'batch\[1\]\["emb"\] was computed from tensors that require grad', r"detach\(\)"),
        """
        weight = torch.nn.Parameter(torch.ones(3))
        class Embedded(Numbers):
            def __getitem__(self, index):
                return {"emb": weight * index if index == 13 else torch.full((3,), float(index))}
        loader = DataLoader(Embedded(), 4, num_workers=2, collate_fn=list)
        got = [sample["emb"].tolist() for batch in loader for sample in batch]
        assert got == [[float(n)] * 3 for n in range(40)]
        print("right")
        """,
    ),
    Program(
        "a sample that never returns",
        SAID,
        (
            r"waiting \d+ s for worker 1 \(pid \d+\): sample 13 \(batch 3\)",
            r"program\.py:\d+, in __getitem__",
        ),
        """
        class Sleeps(Numbers):
            def __getitem__(self, index):
                if index == 13:
                    time.sleep(1000)
                return index
        for _ in DataLoader(Sleeps(), 4, num_workers=2):
            pass
        """,
    ),
    Program(
        "a timeout",
        ERROR,
        (
            r"timed out after 5 seconds",
            r"sample 13 \(batch 3\)",
            r"program\.py:\d+, in __getitem__",
        ),
        """
        class Sleeps(Numbers):
            def __getitem__(self, index):
                if index == 13:
                    time.sleep(1000)
                return index
        loader = DataLoader(Sleeps(), 4, num_workers=2, timeout=5, multiprocessing_context="fork")
        for _ in loader:
            pass
        """,
    ),
    Program(
        "a timeout in the epoch after the one that hung",
        ERROR,
        (r"timed out after 5 seconds", r"sample 13\b"),
        """
        class Sleeps(Numbers):
            def __getitem__(self, index):
                if index == 13:
                    time.sleep(1000)
                return index
        loader = DataLoader(Sleeps(), 4, num_workers=2, timeout=5, persistent_workers=True)
        try:
            for _ in loader:
                pass
        except RuntimeError:
            pass
        for _ in loader:
            pass
        """,
    ),
    # ---- B: fork and threads
    Program(
        "a thread pool of the dataset, used before the fork",
        DATA,
        (),
        """
        from concurrent.futures import ThreadPoolExecutor
        class Pooled(Numbers):
            def __init__(self):
                super().__init__()
                self.pool = ThreadPoolExecutor(2)
                self.pool.submit(int, 1).result()
            def __getitem__(self, index):
                return self.pool.submit(int, index).result()
        check(DataLoader(Pooled(), 4, num_workers=2))
        print("right")
        """,
    ),
    Program(
        "a thread pool of the dataset, where workers are to be forked",
        ERROR,
        (r"sample 0 \(batch 0\) was deadlocked", r"antifreeze\.per_worker\(make_it\)"),
        """
        from concurrent.futures import ThreadPoolExecutor
        class Pooled(Numbers):
            def __init__(self):
                super().__init__()
                self.pool = ThreadPoolExecutor(2)
                self.pool.submit(int, 1).result()
            def __getitem__(self, index):
                return self.pool.submit(int, index).result()
        list(DataLoader(Pooled(), 4, num_workers=2, multiprocessing_context="fork"))
        """,
    ),
    Program(
        "OpenCV before and in workers, on all processors",
        DATA,
        (),
        """
        import cv2
        cores = os.sched_getaffinity(0)
        class Blurred(Numbers):
            def __getitem__(self, index):
                assert os.sched_getaffinity(0) == cores
                picture = np.full((400, 400, 3), index, np.uint8)
                return int(cv2.GaussianBlur(picture, (31, 31), 0)[0, 0, 0])
        cv2.GaussianBlur(np.zeros((2000, 2000, 3), np.uint8), (31, 31), 0)
        check(DataLoader(Blurred(), 4, num_workers=2))
        print("right")
        """,
    ),
    # ---- C: handles and memory
    Program(
        "zip and npz archives opened before",
        DATA,
        (),
        """
        import zipfile
        class Archived(Numbers):
            def __init__(self):
                super().__init__(200)
                with zipfile.ZipFile("rows.zip", "w") as archive:
                    for n in range(200):
                        archive.writestr(str(n), b"%d" % n * 500)
                np.savez("rows.npz", **{str(n): np.full(300, n) for n in range(200)})
                self.zip, self.npz = zipfile.ZipFile("rows.zip"), np.load("rows.npz")
            def __getitem__(self, index):
                assert self.zip.read(str(index)) == b"%d" % index * 500
                return int(self.npz[str(index)][7])
        dataset = Archived()
        dataset[7]
        check(DataLoader(dataset, 4, num_workers=2), 200)
        print("right")
        """,
    ),
    Program(
        "a file that could also be written to",
        DATA,
        (),
        """
        class Rows(Numbers):
            def __init__(self):
                super().__init__(4000)
                np.arange(4000, dtype=np.int64).tofile("rows.bin")
                self.file = open("rows.bin", "r+b")
            def __getitem__(self, index):
                self.file.seek(8 * index)
                return int.from_bytes(self.file.read(8), "little")
        check(DataLoader(Rows(), 4, num_workers=2), 4000)
        print("right")
        """,
    ),
    Program(
        "a descriptor by its number, spawned workers",
        ERROR,
        (r"sample \d+",),
        """
        class Rows(Numbers):
            def __init__(self):
                super().__init__(4000)
                np.arange(4000, dtype=np.int64).tofile("rows.bin")
                self.number = os.open("rows.bin", os.O_RDONLY)
            def __getitem__(self, index):
                return int.from_bytes(os.pread(self.number, 8, 8 * index), "little")
        list(DataLoader(Rows(), 4, num_workers=2, multiprocessing_context="spawn"))
        """,
    ),
    Program(
        "a program that the dataset talks to",
        SAID,
        (r"dataset\.program",),
        """
        import subprocess
        class Echoed(Numbers):
            def __init__(self):
                super().__init__()
                pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
                self.program = subprocess.Popen(["cat"], **pipes)
            def __getitem__(self, index):
                self.program.stdin.write(b"%d\\n" % index)
                self.program.stdin.flush()
                return int(self.program.stdout.readline())
        check(DataLoader(Echoed(), 4, num_workers=2))
        """,
    ),
    Program(
        "a socket opened before",
        SAID,
        (r"dataset\.sock is an open socket, opened before the workers",),
        """
        import socket
        class Asked(Numbers):
            def __init__(self):
                super().__init__()
                self.other, self.sock = socket.socketpair()
        check(DataLoader(Asked(), 4, num_workers=2))
        """,
    ),
    Program(
        "memory shared with numpy, spawned workers",
        DATA,
        (),
        """
        class Held(Numbers):
            def __init__(self):
                super().__init__()
                self.rows = torch.arange(1_000_000)
            def __getitem__(self, index):
                return int(self.rows[index])
        dataset = Held()
        array = dataset.rows.numpy()
        for _ in range(2):
            check(DataLoader(dataset, 4, num_workers=2, multiprocessing_context="spawn"))
        others = [torch.full((1_000_000,), 7) for _ in range(20)]
        assert (array == np.arange(1_000_000)).all()
        array[5] = 77
        assert dataset.rows[5] == 77 and not dataset.rows.is_shared()
        print("right")
        """,
    ),
    Program(
        "an array and a tensor of it, spawned workers",
        DATA,
        (),
        """
        class Held(Numbers):
            def __init__(self):
                super().__init__()
                self.array = np.arange(100_000)
                self.rows = torch.from_numpy(self.array)
            def __getitem__(self, index):
                return int(self.rows[index])
        check(DataLoader(Held(), 4, num_workers=2, multiprocessing_context="spawn"))
        print("right")
        """,
    ),
]
