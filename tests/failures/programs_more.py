"""More of the programs: randomness, state, errors, endings."""

from __future__ import annotations

import sys

from .programs import DATA, ERROR, PROGRAMS, SAID, WARNING, Program

# Without a keyboard, pdb is left at once: by an exception, and from Python 3.14 on by `sys.exit()`.
LEFT_THE_DEBUGGER = (
    (r"exited unexpectedly with exit code 1", r"sys\.exit\(\) was called at program\.py:\d+")
    if sys.version_info >= (3, 14)
    else (r"BdbQuit", r"raised while loading sample 13 \(batch 3\)")
)

MORE = [
    # ---- D: randomness
    Program(
        "a generator that the dataset owns",
        DATA,
        (),
        """
        class Noisy(Numbers):
            def __init__(self):
                super().__init__()
                self.rng = np.random.default_rng(0)
                self.other = torch.Generator().manual_seed(1)
            def __getitem__(self, index):
                return self.rng.random() + torch.rand(1, generator=self.other).item()
        for persistent in (False, True):
            loader = DataLoader(Noisy(), 4, num_workers=2, persistent_workers=persistent)
            draws = [value for _ in range(2) for batch in loader for value in batch.tolist()]
            assert len(set(draws)) == 80, len(set(draws))
        print("right")
        """,
    ),
    Program(
        "a generator that an iterable dataset owns",
        SAID,
        (r"dataset\.rng gives the same numbers in each of the 2 workers",),
        """
        class Noisy(IterableDataset):
            def __init__(self):
                self.rng = np.random.default_rng(0)
            def __iter__(self):
                for _ in range(get_worker_info().id, 40, 2):
                    yield self.rng.random()
        list(DataLoader(Noisy(), 4, num_workers=2))
        """,
    ),
    # ---- E: streams, persistent workers, state
    Program(
        "a stream that each worker shuffles and none parts",
        SAID,
        (r"every sample comes 2 times an epoch",),
        """
        class Shuffled(IterableDataset):
            def __iter__(self):
                yield from np.random.permutation(200).tolist()
        list(DataLoader(Shuffled(), 4, num_workers=2))
        """,
    ),
    Program(
        "a transform changed under persistent workers",
        SAID,
        (r"dataset\.transform\.p .*has changed in this process",),
        """
        class Dropout:
            p = 0.0
        class Transformed(Numbers):
            def __init__(self):
                super().__init__()
                self.transform = Dropout()
                self.transform.p = 0.0
            def __getitem__(self, index):
                return self.transform.p
        dataset = Transformed()
        loader = DataLoader(dataset, 4, num_workers=2, persistent_workers=True)
        for epoch in range(2):
            list(loader)
            dataset.transform.p = 0.5
        """,
    ),
    Program(
        "two iterators of one loader, by name",
        SAID,
        (r"two loops share this loader at the same time",),
        """
        loader = DataLoader(Numbers(8), 2, num_workers=2, persistent_workers=True)
        first = iter(loader)
        assert next(first).tolist() == [0, 1]
        second = iter(loader)
        assert [batch.tolist() for batch in second] == [[0, 1], [2, 3], [4, 5], [6, 7]]
        assert next(first, None) is None
        """,
    ),
    Program(
        "a list of bad files kept by the dataset, one epoch",
        SAID,
        (r"dataset\.bad \(0 items, now \d+\) has changed in a worker",),
        """
        class Counts(Numbers):
            def __init__(self):
                super().__init__()
                self.bad = []
            def __getitem__(self, index):
                self.bad.append(index)
                return index
        check(DataLoader(Counts(), 4, num_workers=2))
        """,
    ),
    # ---- F: errors
    Program(
        "a segmentation fault",
        ERROR,
        (r"Segmentation fault", r"sample 13 \(batch 3", r"program\.py.*, line \d+, in __getitem__"),
        """
        import ctypes
        class Faulty(Numbers):
            def __getitem__(self, index):
                return ctypes.string_at(0) if index == 13 else index
        list(DataLoader(Faulty(), 4, num_workers=2))
        """,
    ),
    Program(
        "a worker that dies when all is sent, and another in innocent code",
        ERROR,
        (r"was loading sample 25 \(batch 6",),
        """
        class Mortal(Numbers):
            def __getitem__(self, index):
                if index == 13:
                    threading.Timer(0.05, os._exit, (1,)).start()
                if index == 25:
                    os.kill(os.getpid(), signal.SIGKILL)
                return torch.full((100_000,), index)
        iterator = iter(DataLoader(Mortal(), 4, num_workers=2))
        got = next(iterator)[:, 0].tolist()
        end = time.monotonic() + 1
        while time.monotonic() < end:  # nobody may disturb this
            sum(range(1000))
        for _ in range(5):
            got += next(iterator)[:, 0].tolist()
        assert got == list(range(24))
        next(iterator)
        """,
    ),
    Program(
        "no main guard, classes of a cell, spawned workers",
        DATA,
        (),
        """
        cell = '''
        def helper(index):
            return index
        class FromACell(Numbers):
            def __getitem__(self, index):
                return helper(index)
        '''
        import textwrap
        exec(compile(textwrap.dedent(cell), "<cell 1>", "exec"))
        for method in ("spawn", "forkserver"):
            check(DataLoader(FromACell(), 4, num_workers=2, multiprocessing_context=method))
        print("right")
        """,
    ),
    Program(
        "a dataset that does not open in a worker",
        ERROR,
        (r"no such index: 'rows\.idx'", r"in __setstate__", r"No worker came up"),
        """
        class Indexed(Numbers):
            def __setstate__(self, state):
                raise FileNotFoundError(2, "no such index", "rows.idx")
        list(DataLoader(Indexed(), 4, num_workers=2, multiprocessing_context="spawn"))
        """,
    ),
    Program(
        "an init function that ends its worker",
        ERROR,
        (r"exit code 3", r"in worker_init_fn"),
        """
        def start(worker):
            sys.exit(3)
        list(DataLoader(Numbers(), 4, num_workers=2, worker_init_fn=start))
        """,
    ),
    Program(
        "a breakpoint in a worker",
        ERROR,
        LEFT_THE_DEBUGGER,
        """
        class Debugged(Numbers):
            def __getitem__(self, index):
                if index == 13:
                    breakpoint()
                return index
        list(DataLoader(Debugged(), 4, num_workers=2))
        """,
    ),
    # ---- H: endings
    Program(
        "workers that ignore SIGTERM, at the end of the program",
        DATA,
        (),
        """
        class Stubborn(Numbers):
            def __getitem__(self, index):
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                if index >= 8:
                    time.sleep(1000)
                return index
        iterator = iter(DataLoader(Stubborn(), 4, num_workers=2, persistent_workers=True))
        assert next(iterator).tolist() == [0, 1, 2, 3]
        print("right")
        """,
    ),
    Program(
        "a worker killed while it sends",
        WARNING,
        (r"is killed by signal: Killed", r"The worker is replaced"),
        """
        class Large:
            def __init__(self, index):
                self.index, self.bytes = index, bytes(3_000_000)
        class Mortal(Numbers):
            def __getitem__(self, index):
                if index == 12 and not os.path.exists("once"):
                    open("once", "w").close()
                    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGKILL)).start()
                time.sleep(0.05)
                return Large(index)
        got = []
        for batch in DataLoader(Mortal(), 4, num_workers=2, collate_fn=list):
            time.sleep(0.1)
            got += [sample.index for sample in batch]
        assert got == list(range(40))
        print("right")
        """,
    ),
]

BY_NAME = {program.name: program for program in [*PROGRAMS, *MORE]}
