"""Amounts, ages and names as people read them."""

import pytest

from gpuledger.cli.tables.display_texts import (
    age_text,
    amounts_text,
    columns_of,
    duration_text,
    quantity_text,
    resource_text,
    shortened,
)


@pytest.mark.parametrize(
    ("key", "resource"),
    [
        ("limits.nvidia.com/gpumem", "gpumem"),
        ("requests.v100.nvidia.com/gpu", "v100.gpu"),
        ("nvidia.com/gpu", "gpu"),
        ("limits.hygon.com/dcumem", "hygon.com/dcumem"),
        ("requests.cpu", "requests.cpu"),
    ],
)
def test_a_resource_has_no_prefix_and_no_domain_of_nvidia(key: str, resource: str) -> None:
    assert resource_text(key) == resource


@pytest.mark.parametrize(
    ("key", "amount", "text"),
    [
        ("limits.nvidia.com/gpumem", 16_384, "16384Mi"),
        ("limits.v100.nvidia.com/gpumem", 8_000, "8000Mi"),
        ("hygon.com/dcucores", 60, "60%"),
        ("mthreads.com/sgpu-core", 8, "8"),
        ("requests.nvidia.com/gpu", -1, "-1"),
        ("requests.cpu", 500, "500m"),
        ("limits.memory", 16 * 1024**3, "16Gi"),
        ("limits.memory", 1_500, "1500"),
        ("limits.memory", 0, "0"),
        ("pods", 7, "7"),
    ],
)
def test_an_amount_has_the_unit_of_its_resource(key: str, amount: int, text: str) -> None:
    assert quantity_text(key, amount) == text


def test_amounts_are_one_word() -> None:
    amounts = {"nvidia.com/gpu": 2, "nvidia.com/gpumem": 16_000}
    assert amounts_text(amounts) == "gpu=2,gpumem=16000Mi"
    assert amounts_text({}) == "-"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (330, "5m30s"),
        (600, "10m"),
        (10_799, "179m"),
        (10_800, "3h"),
        (26_400, "7h20m"),
        (28_800, "8h"),
        (172_799, "47h"),
        (172_800, "2d"),
        (180_000, "2d2h"),
        (691_200, "8d"),
        (63_071_999, "729d"),
        (63_072_000, "2y"),
        (2_592_000 + 63_072_000, "2y30d"),
        (400_000_000, "12y"),
    ],
)
def test_a_duration_is_written_as_kubectl_does(seconds: int, text: str) -> None:
    assert duration_text(seconds) == text


def test_an_age_is_counted_from_the_given_time() -> None:
    assert age_text("2026-01-31T12:00:00.500000Z", 1_769_860_805.0) == "4s"
    assert age_text("2026-01-31T12:00:00Z", 0.0) == "0s"
    assert age_text("") == "-"


@pytest.mark.parametrize("text", ["pods/web-7d9f8c6b5-x2x9z", "名前空間" * 9, "e\u0301" * 40])
@pytest.mark.parametrize("width", [1, 2, 9, 10])
def test_a_shortened_name_keeps_both_ends_within_its_width(text: str, width: int) -> None:
    short = shortened(text, width)
    assert columns_of(short) <= width
    assert short.count("…") == 1
    head, tail = short.split("…")
    assert text.startswith(head)
    assert text.endswith(tail)


def test_a_name_that_fits_is_whole() -> None:
    assert shortened("team-a", 6) == "team-a"
