"""Log set-up: the log lines of a process, one JSON object each, on standard error.

An event name is constant. Fields are `time`, `level`, `event`, `logger` and those of the caller. A
line is bounded, so a large value cannot flood a disk.
"""

import logging
import sys
from typing import Any, Final, TextIO

import msgspec
import structlog
from structlog.types import EventDict, Processor, WrappedLogger

FIELD_CHARACTERS_MAX: Final = 2_000
"""Longest text of one field; the rest is cut and marked."""

_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}

# Libraries whose info lines an operator cannot act on.
_QUIET: Final = ("uvicorn.error", "nats", "aiohttp.access", "asyncio")


def configure(level: str, style: str, stream: TextIO = sys.stderr) -> None:
    """Send every log line of this process to the stream: style `json`, or `console` for people."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_rendering(style),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(_LEVELS[level])
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(logging.WARNING, _LEVELS[level]))


def _rendering(style: str) -> list[Processor]:
    if style == "console":
        # The default formatter shows the values of variables: tokens, cookies, manifests.
        plain = structlog.dev.plain_traceback
        return [structlog.dev.ConsoleRenderer(colors=False, exception_formatter=plain)]
    return [structlog.processors.format_exc_info, _bounded, _json]


def _bounded(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    for name, value in event.items():
        if isinstance(value, str) and len(value) > FIELD_CHARACTERS_MAX:
            event[name] = f"{value[:FIELD_CHARACTERS_MAX]}… ({len(value)} characters)"
    return event


def _json(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    first = {name: event.pop(name, None) for name in ("time", "level", "logger", "event")}
    return msgspec.json.encode({**first, **event}, enc_hook=_plain).decode()


def _plain(value: Any) -> str:
    return str(value)
