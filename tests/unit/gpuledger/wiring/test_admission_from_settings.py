"""How settings become kinds, who acts for them, and how namespaces are treated."""

from pathlib import Path
from typing import Any, cast

import pytest

from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.wiring import admission_from_settings, webhook_scope
from ledger.core.model.state import State
from ledger.kube.resource_claims.device_classes import NOT_A_GPU, Unmapped
from ledger.runtime.settings.settings import Settings
from webhook.context.admission_settings import AdmissionSettings
from webhook.context.namespace_policies import NamespacePolicy


class EmptyLedger:
    """A ledger without any entry."""

    state = State()

    def subscribe(self, follow: object) -> None:
        """Nothing changes."""


OWN = """
group: example.com
resource: widgets
kind: Widget
podSets:
- template: spec.template
"""


def test_settings_without_a_word_on_policy_enforce() -> None:
    assert admission_from_settings.namespace_policy(Settings()) == NamespacePolicy()


def test_every_setting_of_policy_is_used() -> None:
    settings = Settings(
        mode="warn",
        on_exceeded="pending",
        surge="strict",
        elastic="max",
        pods_only=True,
        exempt_users=("ada",),
        exempt_groups=("ops",),
        foreign_holders="none",
        missing_claim_templates="deny",
        unmapped_device_classes="warn",
    )
    assert admission_from_settings.namespace_policy(settings) == NamespacePolicy(
        mode="warn",
        on_exceeded="pending",
        surge="strict",
        elastic="max",
        pods_only=True,
        exempt_users=("ada",),
        exempt_groups=("ops",),
        foreign_holders="none",
        missing_claim_templates="deny",
        unmapped_device_classes="warn",
    )


def test_users_that_create_claims_are_the_defaults_of_admission() -> None:
    made, default = admission_from_settings.admission_settings(Settings()), AdmissionSettings()
    assert made.claim_controllers == default.claim_controllers
    assert made.claim_schedulers == default.claim_schedulers


def test_users_that_create_claims_are_settings() -> None:
    settings = Settings(claim_controllers=("ada",), claim_schedulers=("hopper",))
    made = admission_from_settings.admission_settings(settings)
    assert (made.claim_controllers, made.claim_schedulers) == (("ada",), ("hopper",))


def test_classes_without_gpus_are_not_reviewed_and_not_charged() -> None:
    settings = Settings(other_device_classes=("fpga.example.com",), review_claim_status=True)
    reviewed = webhook_scope.review_scope(settings)
    assert reviewed.other_classes == ("fpga.example.com",)
    assert reviewed.review_claim_status
    context = admission_from_settings.cluster_context(settings, cast("Any", EmptyLedger()))
    mapping = context.resource_claims.world.mapping
    assert mapping.of(None, "fpga.example.com") is NOT_A_GPU
    assert isinstance(mapping.of(None, "gpu.example.com"), Unmapped)


def test_a_file_of_device_classes_is_used(tmp_path: Path) -> None:
    file = tmp_path / "classes.yaml"
    file.write_text("drivers:\n- {driver: gpu.example.com, vendor: nvidia}\n")
    settings = Settings(device_classes_file=str(file))
    context = admission_from_settings.cluster_context(settings, cast("Any", EmptyLedger()))
    assert "gpu.example.com" in context.resource_claims.world.mapping.by_driver


def test_a_file_of_device_classes_that_is_wrong_stops_the_start(tmp_path: Path) -> None:
    file = tmp_path / "classes.yaml"
    file.write_text("classes:\n- {name: a, drivers: [unknown.example.com]}\n")
    settings = Settings(device_classes_file=str(file))
    with pytest.raises(CommandError, match=r"unknown\.example\.com is not a driver") as stopped:
        admission_from_settings.cluster_context(settings, cast("Any", EmptyLedger()))
    assert stopped.value.status is Exit.USAGE


def test_further_identities_stand_beside_the_usual_ones() -> None:
    named = ("jobs.batch=ada", "jobs.batch=system:serviceaccount:a:b")
    usual = admission_from_settings.kind_catalog(Settings()).of_resource("batch", "jobs")
    kind = admission_from_settings.kind_catalog(Settings(controller_identities=named)).of_resource(
        "batch", "jobs"
    )
    assert usual is not None
    assert kind is not None
    assert kind.controllers == (*usual.controllers, "ada", "system:serviceaccount:a:b")


def test_identity_for_an_unknown_kind_stops_the_start() -> None:
    with pytest.raises(CommandError, match=r"widgets\.example\.com is not a known kind") as stopped:
        admission_from_settings.kind_catalog(
            Settings(controller_identities=("widgets.example.com=ada",))
        )
    assert stopped.value.status is Exit.USAGE


def test_kinds_of_ones_own_are_known_and_reviewed(tmp_path: Path) -> None:
    file = tmp_path / "widgets.yaml"
    file.write_text(OWN)
    settings = Settings(
        workload_kinds=(str(file),), controller_identities=("widgets.example.com=ada",)
    )
    reviewed = webhook_scope.review_scope(settings)
    kind = reviewed.kinds.of_resource("example.com", "widgets")
    assert kind is not None
    assert kind.controllers == ("ada",)
    assert "nvidia.com/gpumem" in reviewed.resources
    assert "kube-system" in reviewed.exempt_namespaces


def test_a_file_of_kinds_that_is_not_there_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"none\.yaml cannot be read"):
        admission_from_settings.kind_catalog(
            Settings(workload_kinds=(str(tmp_path / "none.yaml"),))
        )


def test_the_largest_card_of_the_settings_bounds_devices_of_slices() -> None:
    view = cast("Any", EmptyLedger())
    context = admission_from_settings.cluster_context(Settings(card_memory_max=12_345), view)
    assert context.resource_claims.slices.supply.card_memory_max == 12_345
