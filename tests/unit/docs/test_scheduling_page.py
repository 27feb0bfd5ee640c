"""The page about scheduling names every annotation and every word that a pod may write."""

from pathlib import Path
from typing import Final

import pytest

from ledger.core.model.denials import Denial
from ledger.kube.requests.card_selector_annotations import selector_annotations
from ledger.kube.requests.device_requests import CARD_POLICIES, NODE_POLICIES
from ledger.kube.requests.placements.placement_preferences import KEYS, NODE_POLICY, preferences_of
from ledger.kube.vendors.vendors import BUILT_IN, Vendor

PAGE: Final = (Path(__file__).parents[3] / "docs" / "how-to" / "scheduling.md").read_text()
NVIDIA: Final = next(vendor for vendor in BUILT_IN if vendor.name == "nvidia")


@pytest.mark.parametrize("key", sorted({*KEYS, *selector_annotations(NVIDIA).names()}))
def test_every_annotation_is_there(key: str) -> None:
    assert f"`{key}`" in PAGE


@pytest.mark.parametrize("word", sorted({*CARD_POLICIES, *NODE_POLICIES}))
def test_every_policy_is_there(word: str) -> None:
    assert f"`{word}`" in PAGE


@pytest.mark.parametrize("vendor", BUILT_IN, ids=lambda vendor: vendor.name)
def test_every_vendor_with_other_names_is_there(vendor: Vendor) -> None:
    domain = vendor.names()[0].partition("/")[0]
    usual = f"{domain}/use-gputype" in selector_annotations(vendor).names() and vendor.name != "amd"
    family = f"{vendor.name.partition('-')[0]}-…"
    assert usual or f"`{vendor.name}`" in PAGE or f"`{family}`" in PAGE


def test_the_refusal_is_the_one_that_is_given() -> None:
    denial = preferences_of({NODE_POLICY: "random"})
    assert isinstance(denial, Denial)
    assert f"{denial.reason}: {denial.message}" in PAGE
