"""The measure of quota keys, and their base units."""

from ledger.kube.quotas.line_measures import LineMeasure, QuotaMeasure, line_measures
from ledger.kube.requests import gpu_type_annotation
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.quantities import MEBIBYTE
from ledger.kube.vendors.vendors import BUILT_IN

MEMORY = LineMeasure(QuotaMeasure.MEMORY, factor=MEBIBYTE)


def test_keys_of_every_vendor_have_a_measure() -> None:
    measures = line_measures(DemandRules(vendors=BUILT_IN))
    for vendor in BUILT_IN:
        for name in vendor.charged():
            assert f"limits.{name}" in measures
        if vendor.memory:
            assert measures[f"limits.{vendor.memory}"] == MEMORY


def test_cores_are_a_ratio_of_a_card_as_far_as_its_units_are_known() -> None:
    measures = line_measures(DemandRules(vendors=BUILT_IN))
    assert measures["limits.nvidia.com/gpucores"] == (QuotaMeasure.CORES, 1, 100)
    assert measures["limits.mthreads.com/sgpu-core"] == (QuotaMeasure.CORES, 1, 16)
    assert measures["limits.huawei.com/Ascend310P-core"] == (QuotaMeasure.UNITS, 1, 1)


def test_keys_of_a_card_type_have_the_measure_of_its_resource() -> None:
    types = gpu_type_annotation.parse_types(("v100",))
    measures = line_measures(DemandRules(types=types))
    assert measures["limits.v100.nvidia.com/gpumem"] == MEMORY
    assert measures["requests.v100.nvidia.com/gpu"] == (QuotaMeasure.CARDS, 1, 1)


def test_other_managed_resources_have_units_of_their_own() -> None:
    rules = DemandRules(managed=("cpu", "memory", "nvidia.com/mig-1g.10gb"))
    measures = line_measures(rules)
    assert measures["requests.cpu"] == measures["cpu"] == (QuotaMeasure.CPU, 1, 1_000)
    assert measures["limits.memory"] == (QuotaMeasure.MEMORY, 1, 1)
    assert measures["requests.nvidia.com/mig-1g.10gb"].measure is QuotaMeasure.UNITS
    assert "limits.amd.com/gpu" not in measures
