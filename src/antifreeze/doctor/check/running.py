"""All files: two passes, in several processes if there are many, with results in a stable order."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ..source.module import Module
from ..source.project import Project
from ..source.summary import Summary
from .found import Found, Result
from .looking import CANNOT_BE_READ, concerns_us, first_pass, second_pass, unreadable
from .reading import Source, Unreadable, mended, read_source
from .settings import Settings

FEW = 40  # files; starting processes costs more than looking at so many
AT_ONCE = 16  # files a message between processes
# Trees are millions of small objects without cycles: collecting after every 700 of them, as Python
# does, took a third of the time (148,000 lines of MONAI: 10.8 s, with this 7.8 s).
_GARBAGE = (100_000, 20, 50)


@dataclass(frozen=True, slots=True)
class _First:
    """What the first pass gives of one file."""

    path: Path
    summary: Summary | None
    found: tuple[Found, ...]
    lines: int


def check(
    paths: Iterable[Path], settings: Settings, texts: Mapping[Path, str] | None = None
) -> Result:
    """Check files. `texts`: those that are not read from the disk, such as standard input."""
    work = _Work(settings, dict(texts or {}))
    files = list(dict.fromkeys(paths))
    jobs = settings.jobs or len(os.sched_getaffinity(0))
    if jobs <= 1 or len(files) <= FEW or texts:
        with _few_collections():
            firsts = [work.first(path) for path in files]
            summaries = [each.summary for each in firsts if each.summary is not None]
            seconds = [work.second(path) for path in work.begin_second(summaries)]
    else:
        firsts, seconds = _in_processes(work, files, jobs)
    found = [one for each in firsts for one in each.found]
    found += (one for each in seconds for one in each[0])
    return Result(
        found=tuple(sorted(found, key=lambda each: each.order)),
        files=len(files),
        lines=sum(each.lines for each in firsts),
        failures=tuple(one for each in seconds for one in each[1]),
    )


@contextlib.contextmanager
def _few_collections() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(*_GARBAGE)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def check_text(text: str, settings: Settings | None = None, path: str = "example.py") -> Result:
    """Check one text by itself, as tests and examples do."""
    where = Path(path)
    return check([where], settings or Settings(), {where: text})


class _Work:
    """What a process knows while it checks files."""

    def __init__(self, settings: Settings, texts: dict[Path, str]) -> None:
        self.settings = settings
        self.texts = texts
        self.project = Project()
        self._modules: dict[Path, tuple[Source, Module]] = {}  # of few files: parsed once only

    def first(self, path: Path, *, keep: bool = True) -> _First:
        source = Source(path, "")
        try:
            source = read_source(path, self.texts.get(path))
            name, is_package = module_name(path)
            try:
                module, summary = first_pass(source, name, is_package=is_package)
            except Unreadable:
                source = mended(source)
                module, summary = first_pass(source, name, is_package=is_package)
        except Unreadable as error:
            return _First(path, None, self._faults(source, error), source.text.count("\n"))
        if module is not None and keep and len(self._modules) <= FEW:
            self._modules[path] = (source, module)
        found = self._faults(source, *source.faults)
        return _First(path, summary, found, source.text.count("\n"))

    def _faults(self, source: Source, *errors: Unreadable) -> tuple[Found, ...]:
        wanted = any(each.code == CANNOT_BE_READ for each in self.settings.rules_for(source.path))
        return tuple(unreadable(source, each) for each in errors) if wanted and errors else ()

    def begin_second(self, summaries: list[Summary]) -> list[Path]:
        """Take what the first pass gave; say which files are worth a look."""
        self.project = Project(summaries, self._read, self.settings.python)
        return [each.path for each in summaries if concerns_us(each, self.project)]

    def _source(self, path: Path) -> Source:
        source = read_source(path, self.texts.get(path))
        summary = self.project.summary_of(path)
        return mended(source) if summary is not None and summary.is_mended else source

    def _read(self, path: Path) -> str:
        return self._source(path).text

    def second(self, path: Path) -> tuple[list[Found], list[str]]:
        kept = self._modules.get(path)
        if kept is not None:
            source, module = kept
        else:
            summary = self.project.summary_of(path)
            loaded = self.project.load(summary) if summary is not None else None
            if loaded is None:
                return [], []
            source, module = self._source(path), loaded
        return second_pass(module, source, self.project, self.settings)


def module_name(path: Path) -> tuple[str, bool]:
    """Give the dotted name that others import a file by, and whether it is a package."""
    is_package = path.name == "__init__.py"
    parts = [] if is_package else [path.stem]
    folder = path.resolve().parent
    while (folder / "__init__.py").exists():
        parts.insert(0, folder.name)
        folder = folder.parent
    return ".".join(parts) or path.stem, is_package


# ---- in several processes ------------------------------------------------------------------------

_mine: _Work  # of each process


def _in_processes(
    work: _Work, files: list[Path], jobs: int
) -> tuple[list[_First], list[tuple[list[Found], list[str]]]]:
    with ProcessPoolExecutor(jobs, initializer=_begin, initargs=(work.settings,)) as pool:
        firsts = list(pool.map(_first, files, chunksize=AT_ONCE))
    summaries = [each.summary for each in firsts if each.summary is not None]
    wanted = work.begin_second(summaries)
    if len(wanted) <= FEW // 4:
        return firsts, [work.second(path) for path in wanted]
    given = (work.settings, summaries)
    with ProcessPoolExecutor(jobs, initializer=_begin, initargs=given) as pool:
        return firsts, list(pool.map(_second, wanted, chunksize=AT_ONCE))


def _begin(settings: Settings, summaries: list[Summary] | None = None) -> None:
    global _mine
    gc.set_threshold(*_GARBAGE)
    _mine = _Work(settings, {})
    if summaries is not None:
        _mine.begin_second(summaries)


def _first(path: Path) -> _First:
    return _mine.first(path, keep=False)


def _second(path: Path) -> tuple[list[Found], list[str]]:
    return _mine.second(path)
