"""Cards of every maker: their names, units and defaults, and files with further ones."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ledger.core.model.denials import Denial, Reason
from ledger.kube.api.objects import Pod
from ledger.kube.hami.managed_resources import is_placed
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.pod_demand import Demand, demand_of
from ledger.kube.vendors import vendor_files
from ledger.kube.vendors.vendor_files import BadVendors
from ledger.kube.vendors.vendors import BUILT_IN, NVIDIA, Vendor, select_vendors

PAGE = Path(__file__).parents[5] / "docs" / "reference" / "quotas.md"
EVERY = DemandRules(vendors=BUILT_IN, worst_card_memory=10_000)

DOCUMENTED = """
nvidia.com/gpu nvidia.com/gpumem nvidia.com/gpumem-percentage nvidia.com/gpucores
cambricon.com/vmlu cambricon.com/mlu.smlu.vmemory cambricon.com/mlu.smlu.vcore
hygon.com/dcunum hygon.com/dcumem hygon.com/dcucores
metax-tech.com/gpu metax-tech.com/sgpu metax-tech.com/vmemory metax-tech.com/vcore
mthreads.com/vgpu mthreads.com/sgpu-memory mthreads.com/sgpu-core
iluvatar.ai/MR-V100-vgpu iluvatar.ai/MR-V100.vMem iluvatar.ai/MR-V100.vCore
iluvatar.ai/MR-V50-vgpu iluvatar.ai/MR-V50.vMem iluvatar.ai/MR-V50.vCore
iluvatar.ai/BI-V150-vgpu iluvatar.ai/BI-V150.vMem iluvatar.ai/BI-V150.vCore
iluvatar.ai/BI-V100-vgpu iluvatar.ai/BI-V100.vMem iluvatar.ai/BI-V100.vCore
kunlunxin.com/xpu kunlunxin.com/vxpu kunlunxin.com/vxpu-memory
aws.amazon.com/neuron aws.amazon.com/neuroncore
amd.com/gpu amd.com/gpumem amd.com/gpucores
enflame.com/gcu enflame.com/drs-gcu enflame.com/gcu-memory enflame.com/gcu-core
vastaitech.com/va birentech.com/gpu
huawei.com/Ascend910A huawei.com/Ascend910A-memory huawei.com/Ascend910A-core
huawei.com/Ascend910B2 huawei.com/Ascend910B2-memory huawei.com/Ascend910B2-core
huawei.com/Ascend910B3 huawei.com/Ascend910B3-memory huawei.com/Ascend910B3-core
huawei.com/Ascend910B4 huawei.com/Ascend910B4-memory huawei.com/Ascend910B4-core
huawei.com/Ascend910B4-1 huawei.com/Ascend910B4-1-memory huawei.com/Ascend910B4-1-core
huawei.com/Ascend310P huawei.com/Ascend310P-memory huawei.com/Ascend310P-core
huawei.com/Ascend910C huawei.com/Ascend910C-memory huawei.com/Ascend910C-core
"""
"""Every resource name of HAMi's device configuration, release 2.10, but for priorities."""


def pod(*limits: dict[str, Any]) -> Pod:
    containers = [{"name": "main", "resources": {"limits": amounts}} for amounts in limits]
    return msgspec.convert({"spec": {"containers": containers}}, Pod)


def asked(limits: dict[str, Any], rules: DemandRules = EVERY) -> dict[str, int]:
    demand = demand_of(pod(limits), rules)
    assert isinstance(demand, Demand), demand
    return demand.amounts


def refused(limits: dict[str, Any], rules: DemandRules = EVERY) -> Denial:
    denial = demand_of(pod(limits), rules)
    assert isinstance(denial, Denial), denial
    return denial


def test_every_documented_resource_belongs_to_exactly_one_vendor() -> None:
    names = sorted(
        name
        for vendor in select_vendors([known.name for known in BUILT_IN])
        for name in vendor.names()
    )
    assert names == sorted(DOCUMENTED.split())


def test_the_page_about_quotas_lists_every_vendor_with_its_resources() -> None:
    page = PAGE.read_text()
    names = [name for vendor in BUILT_IN for name in (vendor.name, *vendor.names())]
    assert [name for name in names if f"`{name}`" not in page] == []


@pytest.mark.parametrize("vendor", BUILT_IN, ids=lambda vendor: vendor.name)
def test_quota_page_lists_the_vendors_whose_cards_are_placed(vendor: Vendor) -> None:
    [row] = [
        line for line in PAGE.read_text().splitlines() if line.startswith(f"| `{vendor.name}`")
    ]
    assert row.endswith("| yes |" if is_placed(vendor) else "| counted only |")


def test_the_example_on_the_page_is_a_file_of_vendors(tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(- name: acme\n.*?)```", PAGE.read_text(), re.DOTALL)
    (vendor,) = vendor_files.load(written(tmp_path, example))
    assert asked({"acme.example/npu": 1}, DemandRules(vendors=(vendor,))) == {
        "acme.example/npu": 1,
        "acme.example/npu-cores": 8,
        "acme.example/npu-memory": 65_536,
    }


def test_only_nvidia_counts_unless_others_are_switched_on() -> None:
    assert DemandRules().vendors == (NVIDIA,)
    assert asked({"hygon.com/dcunum": 1, "nvidia.com/gpumem": 5}, DemandRules()) == {
        "nvidia.com/gpu": 1,
        "nvidia.com/gpumem": 5,
    }


@pytest.mark.parametrize(
    "vendor", [vendor for vendor in BUILT_IN if vendor.count], ids=lambda vendor: vendor.name
)
def test_cards_of_every_vendor_count(vendor: Vendor) -> None:
    assert asked({vendor.count: "3"})[vendor.count] == 3


@pytest.mark.parametrize(
    ("limits", "amounts"),
    [
        (
            {"cambricon.com/vmlu": 2, "cambricon.com/mlu.smlu.vmemory": 4},
            {
                "cambricon.com/vmlu": 2,
                "cambricon.com/mlu.smlu.vmemory": 2048,
                "cambricon.com/mlu.smlu.vcore": 200,
            },
        ),
        (
            {"metax-tech.com/sgpu": 1, "metax-tech.com/vmemory": 4, "metax-tech.com/vcore": 60},
            {"metax-tech.com/sgpu": 1, "metax-tech.com/vmemory": 4096, "metax-tech.com/vcore": 60},
        ),
        (
            {"iluvatar.ai/MR-V100-vgpu": 1, "iluvatar.ai/MR-V100.vMem": 64},
            {"iluvatar.ai/MR-V100-vgpu": 1, "iluvatar.ai/MR-V100.vMem": 16_384},
        ),
        (
            {"hygon.com/dcunum": 1, "hygon.com/dcumem": 2000, "hygon.com/dcucores": 15},
            {"hygon.com/dcunum": 1, "hygon.com/dcumem": 2000, "hygon.com/dcucores": 15},
        ),
        ({"aws.amazon.com/neuroncore": 8}, {"aws.amazon.com/neuroncore": 8}),
        (
            {"enflame.com/gcu-memory": 6, "enflame.com/gcu-core": 4},
            {"enflame.com/gcu-memory": 6, "enflame.com/gcu-core": 4},
        ),
        (
            {"metax-tech.com/gpu": 2},
            {
                "metax-tech.com/gpu": 2,
            },
        ),
    ],
)
def test_units_and_defaults_are_those_of_the_vendor(
    limits: dict[str, int], amounts: dict[str, int]
) -> None:
    charged = asked(limits)
    assert {name: charged[name] for name in amounts} == amounts
    assert sum(charged.values()) == sum(amounts.values())


def test_cards_that_are_cut_in_fixed_pieces_are_charged_by_the_piece() -> None:
    memory = {
        size: asked({"huawei.com/Ascend910B3": 1, "huawei.com/Ascend910B3-memory": size})
        for size in (1, 16_384, 16_385, 40_000, 90_000)
    }
    assert [amounts["huawei.com/Ascend910B3-memory"] for amounts in memory.values()] == [
        16_384,
        16_384,
        32_768,
        65_536,
        90_000,
    ]


def test_a_vendors_own_size_of_a_card_goes_before_the_assumed_one() -> None:
    whole = asked({"kunlunxin.com/vxpu": 2})
    assert whole["kunlunxin.com/vxpu-memory"] == 2 * 98_304


def test_where_only_single_cards_are_shared_several_are_whole() -> None:
    share = {"mthreads.com/sgpu-memory": 8, "mthreads.com/sgpu-core": 2}
    assert asked({"mthreads.com/vgpu": 1, **share}) == {
        "mthreads.com/vgpu": 1,
        "mthreads.com/sgpu-memory": 4096,
        "mthreads.com/sgpu-core": 2,
    }
    assert asked({"mthreads.com/vgpu": 2, **share}) == {
        "mthreads.com/vgpu": 2,
        "mthreads.com/sgpu-memory": 2 * 96 * 512,
        "mthreads.com/sgpu-core": 32,
    }


def test_more_cores_than_a_card_has_are_refused() -> None:
    denial = refused({"mthreads.com/vgpu": 1, "mthreads.com/sgpu-core": 17})
    assert denial.reason is Reason.INVALID_CORES
    assert "more than the 16" in denial.message


def test_a_whole_card_whose_cores_are_not_known_takes_the_default_ones() -> None:
    vendor = Vendor(name="acme", count="a/npu", cores="a/cores", whole_cores=0, default_cores=5)
    assert asked({"a/npu": 2}, DemandRules(vendors=(vendor,))) == {"a/cores": 10, "a/npu": 2}


def test_one_container_may_ask_for_cards_of_two_vendors() -> None:
    assert asked({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3, "birentech.com/gpu": 2}) == {
        "birentech.com/gpu": 2,
        "nvidia.com/gpu": 1,
        "nvidia.com/gpumem": 3,
    }


def test_what_is_not_known_of_a_card_is_named_by_its_resource() -> None:
    rules = DemandRules(vendors=select_vendors(["nvidia", "hygon"]))
    demand = demand_of(pod({}, {"hygon.com/dcunum": 1}), rules)
    assert isinstance(demand, Demand)
    assert (demand.unknown, demand.memory_unknown) == (
        "hygon.com/dcumem",
        "spec.containers[1].resources",
    )


def test_two_unknown_sizes_of_cards_at_once_are_refused() -> None:
    rules = DemandRules(vendors=select_vendors(["nvidia", "hygon"]))
    denial = refused({"hygon.com/dcunum": 1, "nvidia.com/gpu": 1}, rules)
    assert denial.reason is Reason.CARD_MEMORY_UNKNOWN


def test_cards_without_memory_are_never_of_unknown_size() -> None:
    demand = demand_of(pod({"birentech.com/gpu": 1}), DemandRules(vendors=BUILT_IN))
    assert demand == Demand({"birentech.com/gpu": 1})


def test_vendor_name_selects_all_products_with_that_prefix() -> None:
    assert {vendor.name for vendor in select_vendors(["ascend"])} == {
        f"ascend-{chip}" for chip in ("310p", "910a", "910b2", "910b3", "910b4", "910b4-1", "910c")
    }
    assert [vendor.name for vendor in select_vendors(["metax", "nvidia", "metax-sgpu"])] == [
        "metax",
        "metax-sgpu",
        "nvidia",
    ]


@pytest.mark.parametrize("name", ["nvidi", "NVIDIA", "", "ascend-", "as"])
def test_a_vendor_that_is_not_known_is_an_error_with_the_known_ones(name: str) -> None:
    with pytest.raises(ValueError, match=r"is not a known vendor: use some of nvidia, amd"):
        select_vendors([name])


def test_ones_own_vendor_replaces_the_built_in_one_of_its_name() -> None:
    mine = Vendor(name="nvidia", count="nvidia.com/shared-gpu")
    assert select_vendors(["nvidia"], [mine]) == (mine,)


def test_a_resource_of_two_vendors_is_an_error_that_names_both() -> None:
    mine = Vendor(name="mine", count="nvidia.com/gpu")
    with pytest.raises(ValueError, match=r"nvidia\.com/gpu belongs to both nvidia and mine"):
        select_vendors(["nvidia"], [mine])


def written(directory: Path, text: str) -> Path:
    path = directory / "vendors.yaml"
    path.write_text(text)
    return path


def test_vendors_of_ones_own_are_read_from_a_file(tmp_path: Path) -> None:
    text = "- {name: acme, count: acme.example/npu, memory: acme.example/mem, memoryFactor: 1024}"
    (vendor,) = vendor_files.load(written(tmp_path, text))
    rules = DemandRules(vendors=select_vendors([], [vendor]))
    assert asked({"acme.example/npu": 2, "acme.example/mem": 3}, rules) == {
        "acme.example/mem": 6144,
        "acme.example/npu": 2,
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("name: acme", r"Expected `array`, got `object`"),
        ("- name: [", r"write a list of vendors"),
        ("- count: acme.example/npu", r"missing required field `name` - at `\$\[0\]`"),
        ("- {name: acme, counts: x/y}", r"unknown field `counts`"),
        ("- {name: acme, count: npu}", r"at `\$\[0\].count`"),
        ("- {name: acme}", r"\$\[0\]: names no resource"),
        ("- {name: a, count: x/y}\n- {name: a, count: x/z}", r"\$\[1\]: the name a is given twice"),
        ("- {name: a, count: x/y, cores: x/y}", r"uses one resource twice"),
        ("- {name: a, count: x/y, percentage: x/p}", r"percentage x/p is charged as memory"),
        ("- {name: a, count: x/y, memorySteps: [2, 1]}", r"memorySteps \[2, 1\] must be ascending"),
        ("- {name: a, count: x/y, defaultCores: 9, wholeCores: 8}", r"defaultCores 9 is more than"),
        ("- {name: a, cores: x/y, completed: true}", r"name that resource"),
        ("- {name: a, count: x/y}\n" + "#" * vendor_files.FILE_BYTES_MAX, r"is larger than"),
    ],
)
def test_a_file_that_cannot_be_used_names_itself_and_the_field(
    text: str, problem: str, tmp_path: Path
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(BadVendors, match=problem) as failed:
        vendor_files.load(path)
    assert str(failed.value).startswith(f"{path}: ")
