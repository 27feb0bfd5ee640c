"""From settings to the rules of demand: vendors, types of cards, and what cannot be used."""

from pathlib import Path

import pytest

from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.wiring import demand_rules_from_settings, webhook_scope
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.gpu_type_annotation import CardType
from ledger.kube.vendors.vendors import NVIDIA, Vendor
from ledger.runtime.settings.settings import Settings


def test_the_defaults_of_the_settings_are_those_of_the_rules() -> None:
    assert demand_rules_from_settings.demand_rules(Settings()) == DemandRules()


def test_factor_and_defaults_are_nvidias_alone() -> None:
    settings = Settings(
        vendors=("nvidia", "hygon"),
        memory_factor=1024,
        default_memory=500,
        default_cores=10,
        default_count=2,
    )
    nvidia, hygon = demand_rules_from_settings.demand_rules(settings).vendors
    assert (nvidia.memory_factor, nvidia.default_memory) == (1024, 500)
    assert (nvidia.default_cores, nvidia.default_count) == (10, 2)
    assert (hygon.memory_factor, hygon.default_memory, hygon.default_count) == (1, 0, 1)


@pytest.mark.parametrize(
    ("setting", "field"),
    [
        ({"memory_factor": 1024}, "memoryFactor"),
        ({"default_memory": 500}, "defaultMemory"),
        ({"default_cores": 10}, "defaultCores"),
        ({"default_count": 2}, "defaultCount"),
    ],
)
def test_nvidia_settings_are_refused_when_a_file_replaces_nvidia(
    tmp_path: Path, setting: dict[str, int], field: str
) -> None:
    path = tmp_path / "vendors.yaml"
    path.write_text("- {name: nvidia, count: acme.example/gpu, memory: acme.example/mem}\n")
    with pytest.raises(CommandError, match=field):
        demand_rules_from_settings.demand_rules(Settings(vendors_file=str(path), **setting))  # type: ignore[arg-type]
    path.write_text("- {name: acme, count: acme.example/gpu}\n")
    demand_rules_from_settings.demand_rules(Settings(vendors_file=str(path), **setting))  # type: ignore[arg-type]


def test_priority_is_not_a_charged_resource(tmp_path: Path) -> None:
    """A scheduler would look for none of them on nodes."""
    path = tmp_path / "vendors.yaml"
    path.write_text("- {name: acme, count: acme.example/npu, priority: nvidia.com/gpu}\n")
    with pytest.raises(CommandError, match=r"nvidia\.com/gpu is the priority of acme"):
        demand_rules_from_settings.demand_rules(Settings(vendors_file=str(path)))


def test_types_and_their_annotations_are_settings() -> None:
    settings = Settings(gpu_types=("V100=32768",), gpu_type_annotations=("acme/gpu-type",))
    rules = demand_rules_from_settings.demand_rules(settings)
    assert (rules.types, rules.type_annotations) == (
        (CardType("v100", 32_768),),
        ("acme/gpu-type",),
    )


def test_a_file_adds_vendors_to_the_named_ones(tmp_path: Path) -> None:
    path = tmp_path / "vendors.yaml"
    path.write_text("- {name: acme, count: acme.example/npu}\n")
    rules = demand_rules_from_settings.demand_rules(Settings(vendors_file=str(path)))
    assert rules.vendors == (NVIDIA, Vendor(name="acme", count="acme.example/npu"))


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (Settings(vendors=("intel",)), "'intel' is not a known vendor"),
        (Settings(vendors_file="/nowhere.yaml"), "/nowhere.yaml: cannot be read .No such file"),
        (Settings(gpu_types=("v100=32Gi",)), "'v100=32Gi' is not a type of card"),
    ],
)
def test_what_cannot_be_used_ends_the_start_with_what_to_write(
    settings: Settings, problem: str
) -> None:
    with pytest.raises(CommandError, match=problem) as stopped:
        demand_rules_from_settings.demand_rules(settings)
    assert stopped.value.status is Exit.USAGE


def test_webhooks_review_all_card_and_managed_resources() -> None:
    settings = Settings(vendors=("nvidia", "biren"), managed_resources=("cpu", "nvidia.com/gpu"))
    assert webhook_scope.reviewed_resources(settings) == (
        *NVIDIA.names(),
        "birentech.com/gpu",
        "cpu",
    )
