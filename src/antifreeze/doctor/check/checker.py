"""Check many files in two passes, in several processes if there are many.

Results have a stable order. What goes wrong with one file, a bug of ours included, is a failure of
that file: it is reported, and the others are checked.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..._linux.cores import granted_cores
from ..source.file_summary import Summary
from ..source.import_to_file import module_name
from ..source.project import Project
from ..source.syntax.module import Module
from .check_result import Failure, Result, RuleFinding
from .error_text import describe_error
from .file_check import first_pass, may_have_findings, second_pass
from .files.source_reader import PYTHON, SkippedFile, Source, Unreadable, read_source
from .files.syntax_repair import repaired
from .finding_builder import unreadable_finding
from .process_pool import Task, can_fork, map_in_processes
from .settings import CANNOT_BE_READ, Settings

FEW_FILES = 40  # files; starting processes costs more than looking at so many
_DIED = "the process that looked at it died, and did so again: out of memory, or killed"
# Trees are millions of small objects without cycles: collecting after every 700 of them, as Python
# does, took a third of the time (148,000 lines of MONAI: 10.8 s, with this 7.8 s).
_GARBAGE = (100_000, 20, 50)


@dataclass(frozen=True, slots=True)
class _First:
    """What the first pass gives of one file."""

    path: Path
    summary: Summary | None = None
    found: tuple[RuleFinding, ...] = ()
    failures: tuple[Failure, ...] = ()
    lines: int = 0
    is_read: bool = True  # False: it is no Python


@dataclass(frozen=True, slots=True)
class _Second:
    """What the second pass gives of one file."""

    found: tuple[RuleFinding, ...] = ()
    failures: tuple[Failure, ...] = ()


def check(
    paths: Iterable[Path], settings: Settings, texts: Mapping[Path, str] | None = None
) -> Result:
    """Check files. `texts`: those that are not read from the disk, such as standard input."""
    work = _Work(settings, dict(texts or {}))
    files = list(dict.fromkeys(paths))
    jobs = (settings.jobs or granted_cores()) if can_fork() else 1
    if jobs <= 1 or len(files) <= FEW_FILES or texts:
        with rare_garbage_collection():
            firsts = [work.first(path) for path in files]
            work.begin_second([each.summary for each in firsts if each.summary is not None])
            seconds = [work.second(path) for path in work.wanted()]
        lost: list[Path] = []
    else:
        firsts, seconds, lost = _in_processes(work, files, jobs)
    every: list[_First | _Second] = [*firsts, *seconds]
    failures = [one for each in every for one in each.failures]
    failures += [*work.failures, *(Failure(path, _DIED, ours=False) for path in lost)]
    return Result(
        found=_once(sorted((one for each in every for one in each.found), key=_order)),
        files=len(files),
        lines=sum(each.lines for each in firsts),
        failures=tuple(sorted(failures, key=str)),
        unread=sum(not each.is_read for each in firsts),
        settings=settings.source,
    )


def _once(every: list[RuleFinding]) -> tuple[RuleFinding, ...]:
    """Leave out what several files lead to, but for the first time."""
    return tuple({(each.path, each.code, each.span): each for each in reversed(every)}.values())[
        ::-1
    ]


def _order(found: RuleFinding) -> tuple[str, int, int, str]:
    return found.order


@contextlib.contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Collect garbage rarely: for work with trees."""
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
        self.failures: list[Failure] = []  # between the passes
        self._modules: dict[Path, tuple[Source, Module]] = {}  # of few files: parsed once only

    def first(self, path: Path, *, keep: bool = True) -> _First:
        """Read and summarise a file. Never raises."""
        try:
            return self._first(path, keep=keep)
        except SkippedFile as error:
            return _First(path, failures=(Failure(path, str(error), ours=False),))
        except Exception as error:  # ours, not the program's: the other files are checked
            return _First(path, failures=(Failure(path, describe_error(error)),))

    def _first(self, path: Path, *, keep: bool) -> _First:
        source = Source(path, "")
        try:
            source = read_source(path, self.texts.get(path), self.settings.named)
            name, is_package = module_name(path)
            try:
                module, summary = first_pass(source, name, is_package=is_package)
            except Unreadable:
                source = repaired(source)
                module, summary = first_pass(source, name, is_package=is_package)
        except Unreadable as error:
            found, failures = self._faults(source, error)
            return _First(path, None, found, failures, source.text.count("\n"), bool(failures))
        if module is not None and keep and len(self._modules) <= FEW_FILES:
            self._modules[path] = (source, module)
        found, failures = self._faults(source, *source.faults)
        return _First(path, summary, found, failures, source.text.count("\n"))

    def _faults(
        self, source: Source, *errors: Unreadable
    ) -> tuple[tuple[RuleFinding, ...], tuple[Failure, ...]]:
        """Split what no Python can read from what the one that the project needs may read."""
        if not errors:
            return (), ()
        needed = self.settings.python or (0, 0)
        newer = needed > sys.version_info[:2]
        words = "this is {}, the project needs {}.{}: run antifreeze with that"
        later = [each for each in errors if newer and each.is_syntax]
        failures = tuple(
            Failure(source.path, f"{each}; {words.format(PYTHON, *needed)}", ours=False)
            for each in later
        )
        wanted = any(each.code == CANNOT_BE_READ for each in self.settings.rules_for(source.path))
        now = [each for each in errors if each not in later] if wanted else []
        return tuple(unreadable_finding(source, each) for each in now), failures

    def begin_second(self, summaries: list[Summary]) -> None:
        """Start the second pass with what the first pass found out about all files."""
        self.project = Project(summaries, self._read, self.settings.python, self.settings.root)

    def wanted(self) -> list[Path]:
        """Return the files that are worth a look."""
        return [each.path for each in self.project.summaries if self._is_wanted(each)]

    def _is_wanted(self, summary: Summary) -> bool:
        try:
            return may_have_findings(summary, self.project)
        except Exception as error:  # as in `first`
            self.failures.append(Failure(summary.path, describe_error(error)))
            return False

    def _source(self, path: Path) -> Source:
        source = read_source(path, self.texts.get(path), self.settings.named)
        summary = self.project.summary_of(path)
        return repaired(source) if summary is not None and summary.is_repaired else source

    def _read(self, path: Path) -> str:
        return self._source(path).text

    def second(self, path: Path) -> _Second:
        """Run the rules on a file. Never raises."""
        try:
            found, failures = self._second(path)
        except Exception as error:  # as in `first`
            found, failures = [], [Failure(path, describe_error(error))]
        return _Second(tuple(found), tuple(failures))

    def _second(self, path: Path) -> tuple[list[RuleFinding], list[Failure]]:
        kept = self._modules.get(path)
        if kept is not None:
            source, module = kept
        else:
            summary = self.project.summary_of(path)
            loaded = self.project.load(summary) if summary is not None else None
            if loaded is None:
                raise OSError("it could be read at first, and then no more")
            source, module = self._source(path), loaded
        return second_pass(module, source, self.project, self.settings)


# ---- in several processes ------------------------------------------------------------------------

_mine: _Work  # of each process


def _in_processes(
    work: _Work, files: list[Path], jobs: int
) -> tuple[list[_First], list[_Second], list[Path]]:
    """Return what both passes made, and the files that are lost because processes died."""
    firsts, lost = map_in_processes(Task(_first, _begin, (work.settings,)), files, jobs)
    summaries = [each.summary for each in firsts if each.summary is not None]
    work.begin_second(summaries)
    wanted = work.wanted()
    if len(wanted) <= FEW_FILES // 4:
        return firsts, [work.second(path) for path in wanted], lost
    task = Task(_second, _begin, (work.settings, summaries))
    seconds, lost_then = map_in_processes(task, wanted, jobs)
    return firsts, seconds, [*lost, *lost_then]


def _begin(settings: Settings, summaries: list[Summary] | None = None) -> None:
    global _mine
    gc.set_threshold(*_GARBAGE)
    _mine = _Work(settings, {})
    if summaries is not None:
        _mine.begin_second(summaries)


def _first(path: Path) -> _First:
    return _mine.first(path, keep=False)


def _second(path: Path) -> _Second:
    return _mine.second(path)
