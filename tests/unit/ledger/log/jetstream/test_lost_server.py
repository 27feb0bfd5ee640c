"""A review that meets a lost log server: it outlives the search for another one."""

from nats.aio.client import DEFAULT_MAX_OUTSTANDING_PINGS

from ledger.log.jetstream.nats_connection import CONNECT_SECONDS, PING_SECONDS
from ledger.runtime.settings.settings import Settings


def test_review_outlives_the_loss_of_its_log_server() -> None:
    found_dead = (DEFAULT_MAX_OUTSTANDING_PINGS + 1) * PING_SECONDS
    # The client may try the address of the lost server once more before that of a living one.
    assert found_dead + CONNECT_SECONDS < Settings().admission_deadline_seconds
