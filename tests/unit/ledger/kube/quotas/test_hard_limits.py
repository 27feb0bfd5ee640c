"""Invalid quantities of quotas, and the API server's forms of plain numbers."""

import msgspec
import pytest

from ledger.core.model.amounts import AMOUNT_MAX
from ledger.kube.api.objects import Quantities
from ledger.kube.quotas import hard_limits
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.vendors.vendors import NVIDIA, select_vendors

MEM = "limits.nvidia.com/gpumem"
GPUS = "requests.nvidia.com/gpu"
RULES = DemandRules()
GIB = DemandRules(vendors=(msgspec.structs.replace(NVIDIA, memory_factor=1024),))
"""Memory is asked for in GiB."""


def stored(value: str | int, key: str = MEM, rules: DemandRules = RULES) -> int | None:
    """Return the limit that a value sets in an existing quota, None without a limit."""
    return hard_limits.read({key: value}, rules, lambda _: None, zero_is_unlimited=False).get(key)


def refused(value: str | int, key: str = MEM, rules: DemandRules = RULES) -> str:
    """Return the cause and remedy of an invalid value, empty for an accepted one."""
    problems = hard_limits.invalid_quantities({key: value}, {}, rules)
    return "; ".join(f"{problem.value} {problem.why}: {problem.remedy}" for problem in problems)


# As kube-apiserver 1.36 stores what was written in a ResourceQuota.
@pytest.mark.parametrize(
    ("value", "limit"),
    [
        ("16384", 16_384),
        ("1k", 1_000),
        ("16k", 16_000),
        ("1M", 1_000_000),
        ("16G", 16_000_000_000),
        ("1e3", 1_000),
        ("1E3", 1_000),
        ("5", 5),
        (5, 5),
        ("0", 0),
    ],
)
def test_what_a_plain_number_is_stored_as_is_never_refused(value: str | int, limit: int) -> None:
    assert refused(value) == ""
    assert stored(value) == limit


@pytest.mark.parametrize(
    ("value", "mebibytes"),
    [
        ("16Gi", 16_384),
        ("512Mi", 512),
        ("1536Mi", 1_536),
        ("8200Ti", 8_598_323_200),
        ("4Ei", 2**42),
        ("1Ki", 1),
        ("0.5Gi", 512),
        ("+1Gi", 1_024),
    ],
)
def test_bytes_are_refused_with_mebibytes_and_counted_when_stored(
    value: str, mebibytes: int
) -> None:
    assert refused(value) == (
        f"{value} has a binary suffix and so counts bytes:"
        f" nvidia.com/gpumem counts MiB: write {mebibytes} for {value}"
    )
    assert stored(value) == mebibytes


def test_bytes_are_divided_by_the_unit_of_the_memory_that_pods_ask_in() -> None:
    assert "counts 1024 MiB: write 16 for 16Gi" in refused("16Gi", rules=GIB)
    assert stored("16Gi", rules=GIB) == 16_384
    assert stored("1Gi", "limits.cambricon.com/mlu.smlu.vmemory", _CAMBRICON) == 1_024


_CAMBRICON = DemandRules(vendors=select_vendors(["cambricon"]))


def test_binary_suffix_is_refused_when_the_resource_is_not_memory() -> None:
    assert "counts whole units: write 2048 for 2Ki" in refused("2Ki", GPUS)
    assert stored("2Ki", GPUS) == 2_048


def test_native_resources_keep_their_suffixes() -> None:
    rules = DemandRules(managed=("cpu", "memory"))
    assert refused("1Gi", "limits.memory", rules) == ""
    assert refused("500m", "requests.cpu", rules) == ""
    assert refused("16Gi", "limits.example.com/thing", rules) == ""


@pytest.mark.parametrize("value", ["", "many", "E", "-1", "-5", -5, "1.2.3", "9" * 80])
def test_quantity_is_refused_and_limits_nothing_when_it_is_invalid(
    value: str | int,
) -> None:
    assert "nvidia.com/gpumem counts MiB: write a whole number" in refused(value)
    assert stored(value) is None


@pytest.mark.parametrize(
    "value",
    ["1e400", "10e399", "1e30", "9223372036854775807", "9223372036854775808", 2**70, "9" * 60],
)
def test_quantity_limits_nothing_when_it_is_beyond_the_maximum(value: str | int) -> None:
    assert refused(value) == ""
    assert stored(value) is None


@pytest.mark.parametrize("value", ["0.5", "500m", "1n", "1e-3", "1e-400"])
def test_less_than_one_holds_as_nothing_may_be_used(value: str) -> None:
    assert refused(value) == ""
    assert stored(value) == 0


@pytest.mark.parametrize("suffix", ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"])
@pytest.mark.parametrize("digits", ["0", "1", "9" * 18, "9" * 61, "-9", "0." + "0" * 59 + "1"])
@pytest.mark.parametrize("rules", [RULES, GIB], ids=["MiB", "GiB"])
def test_no_bytes_are_too_many_or_too_few_to_be_read(
    suffix: str, digits: str, rules: DemandRules
) -> None:
    value = digits + suffix
    limit = stored(value, rules=rules)
    assert limit is None or 0 <= limit <= AMOUNT_MAX
    assert refused(value, rules=rules)


def test_what_stood_there_before_is_not_refused_again() -> None:
    now: Quantities = {MEM: "16Gi", GPUS: "1Ki"}
    assert [
        problem.key for problem in hard_limits.invalid_quantities(now, {MEM: "16Gi"}, RULES)
    ] == [GPUS]
    assert [
        problem.key
        for problem in hard_limits.invalid_quantities(now, {MEM: "8Gi", GPUS: "1Ki"}, RULES)
    ] == [MEM]


def test_bytes_are_written_as_the_number_that_they_mean() -> None:
    given: Quantities = {MEM: "16Gi", GPUS: "2k", "limits.memory": "1Gi", "pods": "3"}
    assert hard_limits.corrected(given, RULES) == {**given, MEM: "16384"}
    assert hard_limits.corrected({MEM: "-1Gi", GPUS: "many"}, RULES) == {MEM: "-1Gi", GPUS: "many"}


@pytest.mark.parametrize("value", ["16G", "1T", "1P"])
def test_card_memory_that_no_cluster_has_is_commented_on(value: str) -> None:
    [hint] = hard_limits.hints({MEM: value}, RULES)
    assert hint.startswith(f"{MEM}: {value} is 1")
    assert "for" in hint
    assert "write" in hint


@pytest.mark.parametrize("value", ["16k", "16M", "16384", "-1G", "xG", 16])
def test_other_amounts_are_not_commented_on(value: str | int) -> None:
    assert list(hard_limits.hints({MEM: value}, RULES)) == []
    assert list(hard_limits.hints({GPUS: "16G"}, RULES)) == []
