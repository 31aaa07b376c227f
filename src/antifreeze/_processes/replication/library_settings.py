"""Settings of libraries that are kept in no attribute: read, and set, by functions of their own."""

from __future__ import annotations

import abc
import collections.abc
import contextlib
import numbers
import signal
import sys
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from . import module_state, user_code

_DIALECTS = frozenset({"excel", "excel-tab", "unix"})
_DIALECT = (
    *("delimiter", "doublequote", "escapechar", "lineterminator", "quotechar", "quoting"),
    *("skipinitialspace", "strict"),
)
# What processes of ours, or Python itself, have handlers for, or wait by.
_SIGNALS_OF_OURS = frozenset({"SIGINT", "SIGTERM", "SIGCHLD", "SIGPIPE", "SIGXFSZ"})
_SIGNALS = tuple(each for each in signal.Signals if each.name not in _SIGNALS_OF_OURS)
_BACKENDS = (
    ("cudnn", ("enabled", "benchmark", "deterministic", "allow_tf32")),
    ("cuda.matmul", ("allow_tf32", "allow_fp16_reduced_precision_reduction")),
    ("mkldnn", ("enabled",)),
)


def _read_backends(torch: Any) -> dict[tuple[str, str], bool]:
    """Return torch's switches. One that cannot be read, as it was set in two ways, is left out."""
    found = {}
    for path, names in _BACKENDS:
        for name in names:
            with contextlib.suppress(AttributeError, RuntimeError):
                found[path, name] = getattr(_at(torch.backends, path), name)
    return found


def _set_backends(torch: Any, values: dict[tuple[str, str], bool]) -> None:
    present = _read_backends(torch)
    for (path, name), value in values.items():
        if present.get((path, name), value) != value:
            setattr(_at(torch.backends, path), name, value)


def _at(thing: Any, path: str) -> Any:
    for step in path.split("."):
        thing = getattr(thing, step)
    return thing


def _read_dialects(csv: Any) -> dict[str, dict[str, Any]]:
    own = {name: csv.get_dialect(name) for name in csv.list_dialects() if name not in _DIALECTS}
    return {name: {each: getattr(it, each) for each in _DIALECT} for name, it in own.items()}


def _set_dialects(csv: Any, values: dict[str, dict[str, Any]]) -> None:
    for name, attributes in values.items():
        csv.register_dialect(name, **attributes)


def _read_sys(sys: Any) -> dict[str, Any]:
    values = vars(sys).copy()
    return {
        name: value
        for name, value in values.items()
        if name[:1] != "_" and module_state.is_plain(value)
    }


def _set_sys(sys: Any, values: dict[str, Any]) -> None:
    """Set what is not there: what is belongs to the process."""
    for name, value in values.items():
        if not hasattr(sys, name):
            setattr(sys, name, value)


def _read_ignored(signal: Any) -> list[int]:
    return [each for each in _SIGNALS if signal.getsignal(each) is signal.SIG_IGN]


def _set_ignored(signal: Any, ignored: list[int]) -> None:
    for each in ignored:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(each, signal.SIG_IGN)


def _abstract_classes() -> list[type]:
    modules = (collections.abc, numbers)
    return [kind for each in modules for kind in (getattr(each, name) for name in each.__all__)]


def _registry_of(abstract: type) -> Iterable[weakref.ref[type]]:
    registry: Iterable[weakref.ref[type]] = abc._get_dump(abstract)[0]  # type: ignore[attr-defined]
    return registry


def _read_registered(_: Any) -> list[tuple[type, type]]:
    """Return the program's own classes that it has registered with abstract ones."""
    found = []
    for abstract in _abstract_classes():
        kinds = [reference() for reference in _registry_of(abstract)]
        own = [kind for kind in kinds if kind is not None and user_code.is_own(kind.__module__)]
        found += [(abstract, kind) for kind in sorted(own, key=lambda kind: kind.__qualname__)]
    return found


def _set_registered(_: Any, values: list[tuple[type, Any]]) -> None:
    for abstract, kind in values:
        abstract.register(kind)  # type: ignore[attr-defined]


# Of a module, if the program has imported it: how to read a setting and how to set it.
_SETTINGS: dict[str, tuple[str, Callable[[Any], Any], Callable[[Any, Any], object]]] = {
    "numpy errors": ("numpy", lambda m: m.geterr(), lambda m, v: m.seterr(**v)),
    "numpy printing": (
        "numpy",
        lambda m: m.get_printoptions(),
        lambda m, v: m.set_printoptions(**v),
    ),
    "torch printing": (
        "torch._tensor_str",
        lambda m: dict(vars(m.PRINT_OPTS)),
        lambda m, v: vars(m.PRINT_OPTS).update(v),
    ),
    "torch backends": ("torch", _read_backends, _set_backends),
    "longest integer": (
        "sys",
        lambda m: m.get_int_max_str_digits(),
        lambda m, v: m.set_int_max_str_digits(v),
    ),
    "sys": ("sys", _read_sys, _set_sys),
    "ignored signals": ("signal", _read_ignored, _set_ignored),
    "largest field": ("csv", lambda m: m.field_size_limit(), lambda m, v: m.field_size_limit(v)),
    "dialects": ("csv", _read_dialects, _set_dialects),
    "first weekday": (
        "calendar",
        lambda m: m.firstweekday(),
        lambda m, v: m.setfirstweekday(v),
    ),
    "decimal numbers": ("decimal", lambda m: m.getcontext(), lambda m, v: m.setcontext(v)),
    "locale": ("locale", lambda m: m.setlocale(m.LC_ALL), lambda m, v: m.setlocale(m.LC_ALL, v)),
}
# What holds code of the program's, which is there when all has been opened.
_WITH_CODE = {"registered": ("abc", _read_registered, _set_registered)}


def collect(*, whole: bool = True) -> dict[str, Any]:
    """Read those of this process; `whole`: also where classes of the program's are among them."""
    found = {}
    for name, (module, read, _) in (_SETTINGS | (_WITH_CODE if whole else {})).items():
        if module in sys.modules:
            found[name] = read(sys.modules[module])
    return found


def without_registered(told: dict[str, Any]) -> dict[str, Any]:
    """Return what was collected without classes of the program's."""
    return {name: value for name, value in told.items() if name not in _WITH_CODE}


def apply(told: dict[str, Any]) -> None:
    """Set what is otherwise here."""
    for name, value in told.items():
        module, read, write = (_SETTINGS | _WITH_CODE)[name]
        __import__(module)
        there = sys.modules[module]
        if repr(read(there)) != repr(value):
            write(there, value)
