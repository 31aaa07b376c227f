"""What `logging` was told, carried to a clean process: what a worker logs goes where it went.

Handlers are made anew: those that write to standard output or error, or to a file (appending), and
all others whose attributes can be sent. What writes into memory is left out: in a worker nobody
reads it.
"""

from __future__ import annotations

import io
import logging
import sys
import weakref
from typing import Any

from ..._core.frozen_values import frozen
from ..._reporting.log import ensure_filter
from . import user_code
from .unsendable import Unsendable

_OWN = ("lock", "stream")  # attributes of a handler that belong to its process


@frozen
class SentHandler:
    """A handler, to be made anew."""

    kind: type[logging.Handler]
    attributes: dict[str, Any]
    stream: str | None  # "stdout", "stderr"; None: it has none, or opens its file when it logs


@frozen
class SentLogger:
    level: int
    propagate: bool
    disabled: bool
    handlers: list[SentHandler] | None  # None, and no filters: they cannot be sent
    filters: list[Any]
    kind: type[logging.Logger] | None  # the program's own; None: that of the library
    attributes: dict[str, Any]  # that one of such a class has besides


@frozen
class Logs:
    """Everything that `logging` was told in this process."""

    loggers: dict[str, SentLogger]  # the root logger as ""
    disabled_to: int
    level_names: dict[int, str]
    takes_warnings: bool

    def apply(self) -> None:
        """Make it so in this process."""
        for level, name in self.level_names.items():
            logging.addLevelName(level, name)
        made: dict[int, logging.Handler] = {}
        for name, sent in self.loggers.items():
            logger = logging.getLogger(name)
            if logger.level != sent.level:  # it clears the caches of all loggers
                logger.setLevel(sent.level)
            logger.propagate, logger.disabled = sent.propagate, sent.disabled
            if sent.handlers is None:
                continue
            if sent.kind is not None:
                logger.__class__ = sent.kind
                vars(logger).update(sent.attributes)
            logger.filters[:] = sent.filters
            for each in sent.handlers:
                if id(each) not in made:
                    made[id(each)] = _make(each)
            logger.handlers[:] = [made[id(each)] for each in sent.handlers]
        ensure_filter()
        logging.disable(self.disabled_to)
        if self.takes_warnings:
            logging.captureWarnings(True)


def collect(*, handlers: bool = True) -> Logs:
    """Read the configuration. Raises Unsendable for a handler that cannot be made anew."""
    known = {
        name: logger
        for name, logger in list(logging.root.manager.loggerDict.items())
        if isinstance(logger, logging.Logger)
    }
    sent: dict[int, SentHandler | None] = {}

    def described(logger: logging.Logger) -> list[SentHandler] | None:
        if not handlers:
            return None
        for each in logger.handlers:
            if id(each) not in sent:
                sent[id(each)] = _describe(each)
        return [told for each in logger.handlers if (told := sent[id(each)]) is not None]

    return Logs(
        {
            name: SentLogger(
                logger.level,
                logger.propagate,
                logger.disabled,
                described(logger),
                list(logger.filters) if handlers else [],
                *(_kind(logger) if handlers else (None, {})),
            )
            for name, logger in {"": logging.root, **known}.items()
        },
        logging.root.manager.disable,
        dict(logging._levelToName),
        logging._warnings_showwarning is not None,  # type: ignore[attr-defined]
    )


def _kind(logger: logging.Logger) -> tuple[type[logging.Logger] | None, dict[str, Any]]:
    kind = type(logger)
    if kind in (logging.Logger, logging.RootLogger) or not user_code.is_own(kind.__module__):
        return None, {}
    known = vars(logging.root)
    return kind, {name: value for name, value in vars(logger).items() if name not in known}


def _describe(handler: logging.Handler) -> SentHandler | None:
    attributes = {name: value for name, value in vars(handler).items() if name not in _OWN}
    stream = getattr(handler, "stream", None)
    if isinstance(handler, logging.FileHandler):
        attributes["mode"] = "a"
        return SentHandler(type(handler), attributes, None)
    if stream is None:
        return SentHandler(type(handler), attributes, None)
    if isinstance(stream, io.StringIO | io.BytesIO):
        return None
    for name in ("stdout", "stderr"):
        if stream in (getattr(sys, name), getattr(sys, f"__{name}__")):
            return SentHandler(type(handler), attributes, name)
    raise Unsendable(f"the logging handler {handler!r} writes to a {type(stream).__name__}")


def _make(sent: SentHandler) -> logging.Handler:
    handler: logging.Handler = object.__new__(sent.kind)
    vars(handler).update(sent.attributes)
    handler.createLock()
    if isinstance(getattr(sent.kind, "stream", None), property):
        pass  # it finds its stream by itself
    elif sent.stream is not None:
        handler.stream = getattr(sys, sent.stream)  # type: ignore[attr-defined]
    elif isinstance(handler, logging.StreamHandler):
        handler.stream = None
    logging._handlerList.append(weakref.ref(handler))  # type: ignore[attr-defined]
    return handler
