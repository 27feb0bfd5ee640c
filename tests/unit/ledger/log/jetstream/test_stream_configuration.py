"""The comparison of a stream's configuration with what the ledger needs."""

import msgspec
import pytest

from ledger.log.jetstream import stream_configuration
from ledger.log.jetstream.stream_configuration import ConfigurationDrift, StreamNames

LOG = stream_configuration.log_stream(StreamNames("main"), 3, 1_000)


def test_log_stream_has_the_designed_configuration() -> None:
    assert (LOG.name, LOG.subjects) == ("LEDGER-main", ["ledger.main.log"])
    assert (LOG.discard, LOG.storage, LOG.retention) == ("new", "file", "limits")
    assert (LOG.deny_delete, LOG.deny_purge, LOG.allow_direct) == (True, True, True)
    assert (LOG.max_age, LOG.max_msgs, LOG.max_msgs_per_subject) == (0, -1, -1)
    assert (LOG.max_msg_size, LOG.compression, LOG.num_replicas) == (1_048_576, "none", 3)


def test_the_wanted_configuration_agrees_with_itself() -> None:
    stream_configuration.compare(LOG, LOG)


@pytest.mark.parametrize("change", [{"num_replicas": 5}, {"max_bytes": 9}, {"first_seq": 1}])
def test_harmless_difference_is_not_a_drift(change: dict[str, int]) -> None:
    stream_configuration.compare(LOG, msgspec.structs.replace(LOG, **change))


def test_every_difference_is_named_with_both_values() -> None:
    actual = msgspec.structs.replace(LOG, discard="old", num_replicas=1, max_age=5)
    with pytest.raises(ConfigurationDrift) as drift:
        stream_configuration.compare(LOG, actual)
    assert "stream LEDGER-main: discard is 'old', wanted 'new'" in str(drift.value)
    assert "max_age is 5, wanted 0" in str(drift.value)
    assert "num_replicas is 1, wanted 3" in str(drift.value)


@pytest.mark.parametrize(
    "change",
    [
        {"mirror": {"name": "OTHER"}},
        {"sources": [{"name": "OTHER"}]},
        {"subject_transform": {"src": "a", "dest": "b"}},
        {"max_bytes": -1},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_would_fill_or_unbound_the_log_is_drift(change: dict[str, object]) -> None:
    with pytest.raises(ConfigurationDrift, match=next(iter(change))):
        stream_configuration.compare(LOG, msgspec.structs.replace(LOG, **change))


def test_a_size_is_raised_and_never_lowered_and_an_age_follows_the_setting() -> None:
    assert stream_configuration.adjustments(LOG, LOG) == {}
    assert stream_configuration.adjustments(LOG, msgspec.structs.replace(LOG, max_bytes=999)) == {
        "max_bytes": 1_000
    }
    assert (
        stream_configuration.adjustments(LOG, msgspec.structs.replace(LOG, max_bytes=1_001)) == {}
    )
    month, week = (
        stream_configuration.denials_stream(StreamNames("main"), 1, 1, days) for days in (30, 7)
    )
    stream_configuration.compare(week, month)
    assert stream_configuration.adjustments(week, month) == {"max_age": 7 * 24 * 3600 * 10**9}


def test_a_compressed_stream_is_accepted_until_it_is_adjusted() -> None:
    compressed = msgspec.structs.replace(LOG, compression="s2")
    stream_configuration.compare(LOG, compressed)
    assert stream_configuration.adjustments(LOG, compressed) == {"compression": "none"}


def test_every_stream_is_bounded_in_bytes_and_in_consumers() -> None:
    names = StreamNames("main")
    for made in (
        LOG,
        stream_configuration.snapshot_stream(names, 3, 500),
        stream_configuration.denials_stream(names, 3, 1, 30),
        stream_configuration.owner_stream(names, 3),
        stream_configuration.settler_stream(names, 3),
    ):
        assert made.max_bytes > 0, made.name
        assert made.max_consumers > 0, made.name


def test_a_stream_of_before_is_taken_as_it_is_and_given_a_bound() -> None:
    names = StreamNames("main")
    wanted = stream_configuration.snapshot_stream(names, 1, 500)
    before = msgspec.structs.replace(wanted, max_bytes=-1, max_consumers=-1)
    stream_configuration.compare(wanted, before)
    assert stream_configuration.adjustments(wanted, before) == {"max_bytes": 500}


def test_no_two_streams_of_a_shard_share_a_subject() -> None:
    names = StreamNames("main")
    made = [
        stream_configuration.log_stream(names, 1, 1),
        stream_configuration.snapshot_stream(names, 1, 1),
        stream_configuration.denials_stream(names, 1, 1, 30),
        stream_configuration.owner_stream(names, 1),
        stream_configuration.settler_stream(names, 1),
    ]
    subjects = [subject for stream in made for subject in stream.subjects]
    assert len(subjects) == len(set(subjects)) == 6
    assert names.commands_subject("w") not in subjects
