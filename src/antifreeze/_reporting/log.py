"""The `antifreeze` logger. Whatever is logged by it passes one filter.

Lines name files, samples and what exceptions say: text of others. A handler may write them to a
terminal, to a file that is shared, or to a service. So no line has a password, the value of a query
or a control character, wherever it was made. In forked workers the filter is there; clean processes
get it by importing this module.
"""

from __future__ import annotations

import logging

from .redaction import shareable


class RedactingFilter(logging.Filter):
    """Let every record pass, with a message that may be shown, and a traceback. Only a message that
    changes is replaced, so that handlers see zygote and arguments of all others."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info and not record.exc_text:  # handlers take this text if it is there
            record.exc_text = shareable(logging.Formatter().formatException(record.exc_info))
        try:
            message = record.getMessage()
        except Exception:  # wrong arguments: logging reports that itself
            return True
        safe = shareable(message)
        if safe != message:
            record.msg, record.args = safe, ()
        return True


def ensure_filter() -> logging.Logger:
    """Return the logger, with the filter: at first, and when settings of another process were
    applied to this one."""
    logger = logging.getLogger("antifreeze")
    # By name: a module that is imported anew has a class of its own.
    if not any(type(each).__name__ == RedactingFilter.__name__ for each in logger.filters):
        logger.addFilter(RedactingFilter())
    return logger


logger = ensure_filter()
