"""A stamp is ours, fresh and about this very request, or it is none."""

import msgspec
import pytest

from webhook.stamps import AGE_MAX, Stamps, Subject

KEY = b"k" * 32
SUBJECT = Subject("east", "pods", "team", "ada", {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 8000})


class Clock:
    """A clock that a test moves, in seconds."""

    now = 1_000_000.5

    def __call__(self) -> float:
        return self.now


def stamps(clock: Clock, key: bytes = KEY) -> Stamps:
    """Return stamps by that clock, whose nonce is always the same."""
    return Stamps(key, clock=clock, nonce=lambda: "nonce")


def test_a_stamp_names_its_request_on_every_replica_with_the_key() -> None:
    stamp = stamps(Clock()).make(SUBJECT)
    assert stamp.startswith("nonce.1000000.")
    assert stamps(Clock()).nonce_of(stamp, SUBJECT) == "nonce"


def test_two_requests_get_two_stamps() -> None:
    several = Stamps(KEY)
    assert several.make(SUBJECT) != several.make(SUBJECT)


@pytest.mark.parametrize(
    "other",
    [
        {"cluster": "west"},
        {"resource": "jobs"},
        {"namespace": "other"},
        {"username": "eve"},
        {"demand": {"nvidia.com/gpu": 2, "nvidia.com/gpumem": 8000}},
    ],
)
def test_a_stamp_vouches_for_nothing_else(other: dict[str, object]) -> None:
    stamp = stamps(Clock()).make(SUBJECT)
    assert stamps(Clock()).nonce_of(stamp, msgspec.structs.replace(SUBJECT, **other)) == ""


def test_a_stamp_of_another_key_is_none() -> None:
    stamp = stamps(Clock(), b"e" * 32).make(SUBJECT)
    assert stamps(Clock()).nonce_of(stamp, SUBJECT) == ""


def test_nothing_of_a_stamp_can_be_changed() -> None:
    nonce, time, signature = stamps(Clock()).make(SUBJECT).split(".")
    for forged in (
        f"other.{time}.{signature}",
        f"{nonce}.{int(time) + 1}.{signature}",
        f"{nonce}.{time}.{signature[:-1]}",
        f"{nonce}.{time}.",
        f"{nonce}.{time}",
        f".{time}.{signature}",
        f"{nonce}.-1.{signature}",
        f"{'n' * 65}.{time}.{signature}",
        f"{nonce}.{'9' * 5000}.{signature}",
        f"{nonce}.{time}.\u00e9{signature[1:]}",
        "",
        "..",
    ):
        assert stamps(Clock()).nonce_of(forged, SUBJECT) == ""


def test_a_stamp_lasts_as_long_as_a_request_may() -> None:
    clock = Clock()
    several = stamps(clock)
    stamp = several.make(SUBJECT)
    clock.now = 1_000_000 + AGE_MAX
    assert several.nonce_of(stamp, SUBJECT) == "nonce"
    clock.now += 0.1
    assert several.nonce_of(stamp, SUBJECT) == ""


def test_a_stamp_from_far_in_the_future_is_none() -> None:
    clock = Clock()
    several = stamps(clock)
    stamp = several.make(SUBJECT)
    clock.now = 1_000_000 - AGE_MAX - 0.1
    assert several.nonce_of(stamp, SUBJECT) == ""


def test_a_long_nonce_is_refused_although_it_is_signed() -> None:
    several = Stamps(KEY, nonce=lambda: "n" * 65)
    assert several.nonce_of(several.make(SUBJECT), SUBJECT) == ""


def test_a_short_key_is_refused_with_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"31 bytes.*at least 32.*openssl rand -hex 32"):
        Stamps(b"k" * 31)
