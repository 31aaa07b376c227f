"""What a process has been told about itself: read in the main one, made so in a clean one.

A forked worker inherits all of it. One that descends from the clean process gets it from here, so
that it sees what a forked one would: environment, directory, limits, filters, defaults.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import multiprocessing.process
import os
import resource
import socket
import sys
import warnings
from dataclasses import replace
from multiprocessing import reduction, resource_tracker
from typing import Any

import torch

from ..._core.frozen_values import frozen
from ..._linux.clock import follow_zone
from ..._linux.live_processes import own_umask
from ..._loading.rng_adapters import numpy_if_there
from . import library_settings, logging_settings, module_state, stand_in_modules
from .module_state import Known
from .stand_in_modules import StandIn

_LIMITS = tuple(getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_"))


def _default_device() -> torch.device:
    try:
        return torch.get_default_device()
    except (
        AttributeError
    ):  # in torch 2.7 and before, once it was set back by `set_default_device(None)`
        return torch.device("cpu")


@frozen
class TorchDefaults:
    dtype: torch.dtype
    device: torch.device
    sharing_strategy: str
    deterministic: bool
    warns_only: bool
    matmul_precision: str
    grad: bool  # of the thread that loops

    @classmethod
    def collect(cls) -> TorchDefaults:
        return cls(
            torch.get_default_dtype(),
            _default_device(),
            torch.multiprocessing.get_sharing_strategy(),  # type: ignore[no-untyped-call]
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
            torch.get_float32_matmul_precision(),
            torch.is_grad_enabled(),
        )

    def apply(self) -> None:
        """Set what is otherwise here: some of these import half of torch, for seconds."""
        present = self.collect()
        torch.set_default_dtype(self.dtype)
        torch.set_grad_enabled(self.grad)
        torch.multiprocessing.set_sharing_strategy(self.sharing_strategy)  # type: ignore[no-untyped-call]
        if self.device != present.device:
            torch.set_default_device(self.device)
        if self.matmul_precision != present.matmul_precision:
            torch.set_float32_matmul_precision(self.matmul_precision)
        if (self.deterministic, self.warns_only) != (present.deterministic, present.warns_only):
            torch.use_deterministic_algorithms(self.deterministic, warn_only=self.warns_only)


@frozen
class Script:
    """The program's `__main__`, which is not run again."""

    file: str | None
    package: str | None

    @classmethod
    def collect(cls) -> Script:
        main = sys.modules["__main__"]
        return cls(getattr(main, "__file__", None), getattr(main, "__package__", None))

    def apply(self) -> None:
        """Have an empty `__main__`. What of the script is sent is put in it."""
        main = sys.modules["__main__"] = StandIn("__main__")
        if self.file is not None:
            main.__file__ = self.file
        main.__package__ = self.package


class Tracker:
    """The process that cleans up named shared memory: one for the whole program. A process with
    another one would take away what it only looked at."""

    def __reduce__(self) -> tuple[Any, ...]:
        descriptor = resource_tracker._resource_tracker._fd  # type: ignore[attr-defined]
        return _have_tracker, (None if descriptor is None else reduction.DupFd(descriptor),)


def _have_tracker(sent: Any) -> Tracker:
    if sent is not None:
        resource_tracker._resource_tracker._fd = sent.detach()  # type: ignore[attr-defined]
    return Tracker()


@frozen
class ProcessSettings:
    environment: dict[bytes, bytes]
    directory: str | None  # None: it is gone, or closed to us
    umask: int
    limits: dict[int, tuple[int, int]]
    cores: set[int]
    path: list[str]
    argv: list[str]
    recursion_limit: int
    collector: tuple[bool, tuple[int, int, int]]
    socket_timeout_s: float | None
    warning_filters: list[Any]
    authkey: bytes
    start_method: str | None
    tracker: Tracker  # set as soon as it is there
    torch: TorchDefaults
    libraries: dict[str, Any]
    bit_generator: Any  # of numpy's own generator, if it is not the usual one
    script: Script
    logging: logging_settings.Logs
    modules: dict[str, dict[str, Any]]  # of libraries
    program: dict[str, dict[str, Any]]  # likewise, of the program's own

    @classmethod
    def collect(cls, known: Known, *, whole: bool = True) -> ProcessSettings:
        """Read those of this process, but for what is `known` of its modules.

        Raises Unsendable, unless not the `whole` is wanted: then handlers of logging and what the
        script put into modules are left out.
        """
        directory = None
        with contextlib.suppress(OSError):
            directory = os.getcwd()
        return cls(
            environment=dict(os.environb),
            directory=directory,
            umask=own_umask(),
            limits={number: resource.getrlimit(number) for number in _LIMITS},
            cores=os.sched_getaffinity(0),
            path=list(sys.path),
            argv=list(sys.argv),
            recursion_limit=sys.getrecursionlimit(),
            collector=(gc.isenabled(), gc.get_threshold()),
            socket_timeout_s=socket.getdefaulttimeout(),
            warning_filters=list(warnings.filters),
            authkey=bytes(multiprocessing.current_process().authkey),
            start_method=multiprocessing.get_start_method(allow_none=True),
            tracker=Tracker(),
            torch=TorchDefaults.collect(),
            libraries=library_settings.collect(whole=whole),
            bit_generator=_bit_generator(),
            script=Script.collect(),
            logging=logging_settings.collect(handlers=whole),
            modules=module_state.collect(known, of_program=whole),
            program=module_state.plain_of_program(),
        )

    def before_imports(self) -> ProcessSettings:
        """Return those for a process that imports the program's modules: these are what they are
        when they are imported, and register anew what they register in libraries."""
        modules = module_state.without_registered(self.modules)
        libraries = library_settings.without_registered(self.libraries)
        return replace(self, program={}, modules=modules, libraries=libraries)

    def apply(self) -> None:
        """Make them those of this process."""
        self.settle()
        os.umask(self.umask)
        for number, limit in self.limits.items():
            with contextlib.suppress(OSError, ValueError):  # a hard limit that was lower at birth
                if resource.getrlimit(number) != limit:
                    resource.setrlimit(number, limit)
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, self.cores)
        multiprocessing.current_process().authkey = self.authkey
        self.script.apply()
        module_state.install(self.modules | self.program)
        stand_in_modules.carried = self.program

    def settle(self) -> None:
        """Set what a library that is imported might set otherwise; once more when all are there."""
        apply_environment(self.environment)
        if self.directory is not None:
            with contextlib.suppress(OSError):
                os.chdir(self.directory)
        sys.path[:], sys.argv[:] = self.path, self.argv
        sys.setrecursionlimit(self.recursion_limit)
        enabled, threshold = self.collector
        gc.set_threshold(*threshold)
        (gc.enable if enabled else gc.disable)()
        socket.setdefaulttimeout(self.socket_timeout_s)
        warnings.filters[:] = self.warning_filters  # type: ignore[index]
        warnings._filters_mutated()  # type: ignore[attr-defined]
        if self.start_method is not None:
            multiprocessing.set_start_method(self.start_method, force=True)
        self.torch.apply()
        library_settings.apply(self.libraries)
        if self.bit_generator is not None:
            numpy_if_there().random.set_bit_generator(self.bit_generator)
        self.logging.apply()


def _bit_generator() -> Any:
    numpy = sys.modules.get("numpy")
    if numpy is None or not hasattr(numpy.random, "get_bit_generator"):
        return None
    present = numpy.random.get_bit_generator()
    return None if type(present) is numpy.random.MT19937 else present


def apply_environment(environment: dict[bytes, bytes]) -> None:
    for name in set(os.environb) - set(environment):
        del os.environb[name]
    for name, value in environment.items():
        if os.environb.get(name) != value:
            os.environb[name] = value
    follow_zone()
