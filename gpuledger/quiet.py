"""What a short command says while it works: errors of its parts, on standard error, as lines."""

import logging
import sys

import structlog


def narrate_errors_only() -> None:
    """Keep the parts' narration off the terminal."""
    logging.getLogger().setLevel(logging.ERROR)
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
