"""`antifreeze run train.py [args]`: a script as it is, with every torch DataLoader made by us.

1. The script is `__main__`, in this process: its argv, its folder first in the path, its exit code
   and its traceback, without a frame of ours. Processes that multiprocessing spawns find it by
   its file, as they do under `python train.py`.
2. Nothing is written to stdout. What we have to tell comes on stderr (`run_report`).
3. torch is imported when the script does so, and not before: its `--help` takes as long as ever.
"""

from __future__ import annotations

import argparse
import builtins
import importlib.machinery
import io
import itertools
import os
import runpy
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import Any, NoReturn

from .._core.frozen_values import frozen
from .._engine.arguments import check_randomness, read_size, said_of_randomness
from .._reporting.ranks import ranks
from .._reporting.redaction import shareable
from ..integrations import import_hooks
from . import config

OPTIONS = {
    "on_error": ("raise|replace|skip", "what to do about samples that fail"),
    "sample_timeout": ("SECONDS|auto|none", "how long one sample may take"),
    "fault_log": ("FILE", "gets each fault as a line of JSON"),
    "worker_memory": ("BYTES|2GB|1.5GiB|auto|none", "what a worker may hold of its own"),
    "quarantine": ("FILE", "of `antifreeze scan`: samples not to load"),
    "randomness": ("sample|torch", "whose random draws samples get: ours, or torch's own"),
}
_OF_RUN = {"signal": ("USR1|USR2|QUIT|RTMIN|none", "which one has the report told at once")}
_NUMBERS = ("sample_timeout", "worker_memory")


@frozen
class Program:
    """What is to be run, ready to be run."""

    code: CodeType
    argv: list[str]
    first_path: str | None  # None: it is there already
    attributes: dict[str, Any]  # of `__main__`


def add_to(verbs: Any) -> None:
    verb = verbs.add_parser(
        "run",
        help="run a script with every torch DataLoader in it made by antifreeze",
        usage="antifreeze run [options] (script.py | -m module) [args ...]",
        description="Run a script as it is, with every torch DataLoader in it made by antifreeze,"
        " its libraries' included. Options are for loaders that do not say otherwise; those in"
        " [tool.antifreeze] of pyproject.toml hold, too. At the end, when a loader stalls, and on"
        " SIGUSR1 (in a Slurm job only if --signal says so), what the loaders did is told on"
        " stderr.",
    )
    for name, (values, what) in (OPTIONS | _OF_RUN).items():
        # Wherever the script goes to, and starts other ranks, a path is of the folder of now.
        kind = os.path.abspath if name in config.PATHS else str
        verb.add_argument(
            _flag(name), metavar=values, help=what, type=kind, default=argparse.SUPPRESS
        )
    verb.set_defaults(run=run)


def set_apart(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Part our arguments from the script and its own, which are nobody else's business."""
    if not argv or argv[0] != "run":
        return list(argv), []
    place = 1
    while place < len(argv) and argv[place].startswith("--") and argv[place] != "--":
        place += 1 if "=" in argv[place] or argv[place] == "--help" else 2
    if argv[place : place + 1] == ["-h"]:
        place += 1
    rest = place + (argv[place : place + 1] == ["--"])
    return list(argv[:place]), list(argv[rest:])


def run(arguments: argparse.Namespace) -> NoReturn:
    """Run it. Ends as the script does."""
    rest: Sequence[str] = arguments.rest
    named = [name for name in (*OPTIONS, *_OF_RUN) if name in arguments]
    given = [f"{_flag(name)}={vars(arguments)[name]}" for name in named]
    by_name = rest[:1] == ["-m"]
    try:
        if by_name and len(rest) < 2:
            raise ValueError("which module? antifreeze run -m module [args ...]")
        _check_launcher(rest, given)
        script = None if by_name else _script(rest)
        settings = _settings(script)
        options, by = _options(arguments, settings.values)
        if "randomness" not in options and (said := said_of_randomness()):
            check_randomness(said)  # now, not at the first loader
    except (OSError, ValueError, ImportError, TypeError) as error:
        _refuse(error)
    except SyntaxError as error:  # the script's own
        _die_of(error.with_traceback(None))
    used = settings.told(name for name in settings.values if name not in named)
    _prepare(options, by, ["-m", "antifreeze", "run", *given], used)
    _become(script or _module(rest))


# Programs that start others by a command of their own, which `run` does not reach, and how to name
# what they start.
_LAUNCHERS = {
    "torchrun": "torchrun",
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "accelerate": "accelerate",
    "accelerate.commands.launch": "accelerate launch",
}


def _check_launcher(rest: Sequence[str], given: Sequence[str]) -> None:
    """Say which way round it goes, if it is a launcher that is to be run."""
    words = list(rest[1:] if rest[:1] == ["-m"] else rest)
    name = _LAUNCHERS.get(os.path.basename(words[0])) if words else None
    if name is None or (name == "accelerate" and words[1:2] != ["launch"]):
        return
    at = next((at for at, word in enumerate(words) if at and word.endswith(".py")), None)
    script = ["train.py"] if at is None else words[at:]
    before = ["..."] if at is None else words[1:at]
    command = shlex.join([*name.split(), *before, "-m", "antifreeze", "run", *given, *script])
    raise ValueError(
        f"{words[0]} starts other processes, which run without antifreeze then. The other way"
        f" round: {command}"
    )


def _refuse(error: Exception) -> NoReturn:
    print(f"antifreeze run: {shareable(str(error))}", file=sys.stderr)
    raise SystemExit(2) from None


def _say(words: str) -> None:
    """Print a line on stderr, once a machine."""
    if ranks().local_rank == 0:
        print(f"antifreeze run: {words}", file=sys.stderr)


def _settings(script: Program | None) -> config.Configuration:
    """Read what counts for a script, or for the folder that modules come from: whoever owns that
    has code run already, unless Python was told not to look there."""
    named = Path(os.getcwd() if script is None else os.path.realpath(script.argv[0]))
    trust = script is not None or not sys.flags.safe_path
    return config.read(named, (*OPTIONS, *_OF_RUN), _say, trust_owner=trust)


def _options(
    arguments: argparse.Namespace, settings: Mapping[str, Any]
) -> tuple[dict[str, Any], signal.Signals | None]:
    """Return the options of loaders, and the signal that asks for the report."""
    from .._engine.defaults import check
    from . import run_report

    given = dict(settings)
    for name in (*OPTIONS, *_OF_RUN):
        if name in arguments:
            given[name] = _read(name, vars(arguments)[name])
    if isinstance(given.get("worker_memory"), str):  # 2GB, in pyproject.toml
        given["worker_memory"] = _read("worker_memory", given["worker_memory"])
    by = run_report.usual_signal()
    if "signal" in given:
        by = run_report.signal_of(given.pop("signal"))
    return check(given, {"on_error": "raise"}), by


def _read(name: str, text: str) -> Any:
    if text == "none" and name in (*_NUMBERS, *_OF_RUN):
        return None
    if name not in _NUMBERS or text == "auto":
        return text
    try:
        return read_size(text) if name == "worker_memory" else float(text)
    except ValueError:
        values = OPTIONS[name][0].replace("|", ", ")
        raise ValueError(f"{_flag(name)} takes {values}, not {text!r}") from None


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _prepare(
    options: dict[str, Any], by: signal.Signals | None, words: Sequence[str], used: str
) -> None:
    """Install; `by` has it tell, `words` say to an interpreter what this command does, `used` what
    comes from a file."""
    from .._linux import platform_support
    from ..integrations import lightning
    from ..integrations.deferred_install import install_with_torch
    from . import run_report

    if platform_support.switched_off():
        return
    if used:
        _say(used)
    install_with_torch(options)
    lightning.launch_with(words)
    run_report.tell_at_end()
    run_report.gather_from_processes()
    run_report.tell_when_stalled()
    if by is not None:
        run_report.tell_when_asked(by)


# ---- what is to be run --------------------------------------------------------------------------


def _script(rest: Sequence[str]) -> Program:
    """Read a script as `python script.py` does. (A folder, too, or a zip file, with `__main__`.)"""
    if not rest:
        raise ValueError(
            "which script? antifreeze run [options] (script.py | -m module) [args ...]"
        )
    path = rest[0]
    whole = os.path.join(os.getcwd(), path)
    is_script = path.endswith(".py") and not os.path.isdir(path)
    if not is_script and importlib.machinery.PathFinder.find_spec("__main__", [whole]) is not None:
        sys.path.insert(0, whole)
        _, spec, code = runpy._get_main_module_details(ImportError)  # type: ignore[attr-defined]
        del sys.path[0]
        return Program(code, list(rest), whole, _of_spec(spec))
    if os.path.isdir(whole):
        raise ValueError(f"{path} is a folder without a __main__.py; which script in it?")
    if not os.path.exists(whole) and path.startswith("-"):
        raise ValueError(f"there is no option {path}; `antifreeze run --help` has them all")
    if not os.path.exists(whole):
        raise FileNotFoundError(f"there is no script {path}")
    with io.open_code(whole) as file:
        code = compile(file.read(), whole, "exec", dont_inherit=True)
    loader = importlib.machinery.SourceFileLoader("__main__", whole)
    attributes = {"__file__": whole, "__cached__": None, "__loader__": loader, "__spec__": None}
    folder = os.path.dirname(os.path.realpath(whole))
    return Program(code, list(rest), folder, {**attributes, "__package__": None})


class _NotFound(ImportError):
    """There is no such module, or it cannot be run: runpy's own words."""


def _module(rest: Sequence[str]) -> Program:
    """Find a module as `python -m module` does. Its packages are imported for it: what they raise
    is the program's own, and loaders that they make are ours already."""
    here = os.getcwd()
    sys.argv[:] = ["-m", *rest[2:]]  # until it is found
    if not sys.flags.safe_path:
        sys.path[0] = here
    try:
        _, spec, code = runpy._get_module_details(rest[1], _NotFound)  # type: ignore[attr-defined]
    except SystemExit:
        raise
    except _NotFound as error:
        from . import run_report

        run_report.tell_nothing()
        _refuse(error)
    except BaseException as error:
        found = error.__traceback__
        while found is not None and found.tb_frame.f_code.co_filename in _FINDERS:
            found = found.tb_next
        _die_of(error.with_traceback(found))
    return Program(code, [spec.origin, *rest[2:]], None, _of_spec(spec))


_FINDERS = (__file__, runpy._get_module_details.__code__.co_filename)  # type: ignore[attr-defined]


def _of_spec(spec: importlib.machinery.ModuleSpec) -> dict[str, Any]:
    attributes = {"__file__": spec.origin, "__cached__": spec.cached, "__loader__": spec.loader}
    return {**attributes, "__spec__": spec, "__package__": spec.parent}


# ---- running it ---------------------------------------------------------------------------------


def _become(program: Program) -> NoReturn:
    """Be the program from now on: its `__main__`, its argv, its end."""
    main = ModuleType("__main__")
    vars(main).update(program.attributes, __builtins__=builtins, __annotations__={})
    sys.modules["__main__"] = main
    if "__mp_main__" in sys.modules:  # multiprocessing has taken the one before for it: what its
        sys.modules["__mp_main__"] = main  # children send back is found under this name
    sys.argv[:] = program.argv
    if program.first_path is not None and not sys.flags.safe_path:
        sys.path[0] = program.first_path
    try:
        exec(program.code, vars(main))
    except SystemExit:
        raise
    except BaseException as error:
        found = error.__traceback__
        while found is not None and found.tb_frame.f_globals is not vars(main):
            found = found.tb_next
        _die_of(error.with_traceback(_without_finders(found)))
    raise SystemExit(0)


def _without_finders(traceback: TracebackType | None) -> TracebackType | None:
    """Leave out the lines of whoever waits for a module to be imported, and importlib's around
    them, which Python itself leaves out."""
    lines = []
    while traceback is not None:
        lines.append(traceback)
        traceback = traceback.tb_next
    files = [each.tb_frame.f_code.co_filename for each in lines]
    if import_hooks.__file__ in files:
        ours = (import_hooks.__file__, "<frozen importlib")
        lines = [each for each, file in zip(lines, files, strict=True) if not file.startswith(ours)]
        for line, after in itertools.zip_longest(lines, lines[1:]):
            line.tb_next = after
    return lines[0] if lines else None


def _die_of(error: BaseException) -> NoReturn:
    """Do what Python does about an exception that nobody has caught, without our frames."""
    from . import run_report

    run_report.script_raised()
    sys.last_type, sys.last_value = type(error), error
    sys.last_traceback = error.__traceback__
    if sys.version_info >= (3, 12):
        sys.last_exc = error
    hook = getattr(sys, "excepthook", None) or sys.__excepthook__
    try:
        hook(type(error), error, error.__traceback__)
    except SystemExit:
        raise
    except BaseException as worse:
        print("Error in sys.excepthook:", file=sys.stderr)
        sys.__excepthook__(type(worse), worse, worse.__traceback__)
        print("\nOriginal exception was:", file=sys.stderr)
        sys.__excepthook__(type(error), error, error.__traceback__)
    if isinstance(error, KeyboardInterrupt):  # Python ends itself by SIGINT, when all is done
        sys.excepthook = lambda *said: None
        raise KeyboardInterrupt
    raise SystemExit(1)
