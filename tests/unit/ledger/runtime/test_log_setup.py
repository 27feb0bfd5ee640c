"""Log lines: JSON from both ways of logging, bounded, and with the exception inside."""

import io
import logging
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import structlog

from ledger.runtime import log_setup


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """Configured logging into a text, put back afterwards."""
    root = logging.getLogger()
    before = root.handlers, root.level
    yield io.StringIO()
    root.handlers, root.level = before[0], before[1]
    structlog.reset_defaults()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in stream.getvalue().splitlines()]


def test_an_event_is_one_json_object(stream: io.StringIO) -> None:
    log_setup.configure("info", "json", stream)
    structlog.get_logger("ledger.log").info("owner_changed", owner="w1", term=3)
    [line] = lines(stream)
    assert list(line) == ["time", "level", "logger", "event", "owner", "term"]
    assert line["time"].endswith("Z")
    del line["time"]
    assert line == {
        "level": "info",
        "logger": "ledger.log",
        "event": "owner_changed",
        "owner": "w1",
        "term": 3,
    }


def test_standard_logging_makes_the_same_lines(stream: io.StringIO) -> None:
    log_setup.configure("info", "json", stream)
    logging.getLogger("webhook.active_replica").warning(
        "settlement_begins", extra={"cluster": "east"}
    )
    [line] = lines(stream)
    assert (line["logger"], line["event"]) == ("webhook.active_replica", "settlement_begins")
    assert (line["level"], line["cluster"]) == ("warning", "east")


@pytest.mark.parametrize("style", ["json", "console"])
def test_what_is_below_the_level_is_not_written(stream: io.StringIO, style: str) -> None:
    log_setup.configure("warning", style, stream)
    structlog.get_logger("a").info("quiet")
    logging.getLogger("a").info("quiet")
    assert stream.getvalue() == ""


def test_libraries_do_not_talk_at_info(stream: io.StringIO) -> None:
    log_setup.configure("info", "json", stream)
    logging.getLogger("uvicorn.error").info("Started server process")
    assert stream.getvalue() == ""


def test_an_exception_stays_in_its_line(stream: io.StringIO) -> None:
    log_setup.configure("info", "json", stream)
    try:
        raise ValueError("bad")
    except ValueError:
        structlog.get_logger("a").exception("failed")
        logging.getLogger("a").exception("failed")
    assert ["ValueError: bad" in line["exception"] for line in lines(stream)] == [True, True]


def test_a_large_value_is_cut_and_marked(stream: io.StringIO) -> None:
    log_setup.configure("info", "json", stream)
    structlog.get_logger("a").info("big", value="x" * 1_000_000)
    [line] = lines(stream)
    assert line["value"] == "x" * log_setup.FIELD_CHARACTERS_MAX + "… (1000000 characters)"


def test_a_value_that_json_does_not_support_is_written_as_text(stream: io.StringIO) -> None:
    log_setup.configure("info", "json", stream)
    structlog.get_logger("a").info("odd", value=ValueError("bad"))
    assert lines(stream)[0]["value"] == "bad"


def test_the_console_is_for_people(stream: io.StringIO) -> None:
    log_setup.configure("info", "console", stream)
    structlog.get_logger("a").info("ready", address="127.0.0.1:8443")
    assert "ready" in stream.getvalue()
    assert "address=127.0.0.1:8443" in stream.getvalue()


@pytest.mark.parametrize("style", ["json", "console"])
def test_an_exception_shows_no_value_of_a_variable(stream: io.StringIO, style: str) -> None:
    log_setup.configure("info", style, stream)
    token = "-".join(["secret", "token"])
    try:
        raise KeyError(len(token))
    except KeyError:
        structlog.get_logger("page").exception("page_failed")
    assert "KeyError: 12" in stream.getvalue()
    assert "secret-token" not in stream.getvalue()
