"""By which annotations pods choose among the cards of each vendor."""

from pathlib import Path

import pytest

from ledger.core.model.denials import Denial, Reason
from ledger.kube.requests.card_selector_annotations import (
    ITEMS_MAX,
    selector_annotations,
    selector_of,
)
from ledger.kube.requests.device_requests import ANY, DeviceSelector
from ledger.kube.vendors import vendor_files
from ledger.kube.vendors.vendors import BUILT_IN, NVIDIA, Vendor, select_vendors

VENDORS = {vendor.name: vendor for vendor in BUILT_IN}


def test_types_uuids_and_mode_are_chosen_and_excluded() -> None:
    annotations = {
        "nvidia.com/use-gputype": "A100, H100,,A100",
        "nvidia.com/nouse-gputype": "40GB",
        "nvidia.com/use-gpuuuid": " GPU-a ",
        "nvidia.com/nouse-gpuuuid": "GPU-b,GPU-c",
        "nvidia.com/vgpu-mode": "mig ",
    }
    assert selector_of(annotations, NVIDIA) == DeviceSelector(
        ("A100", "H100"), ("40GB",), ("GPU-a",), ("GPU-b", "GPU-c"), "mig"
    )


@pytest.mark.parametrize("text", ["", " ", ",", " , "])
def test_selector_accepts_all_when_its_list_is_empty(text: str) -> None:
    assert selector_of({"nvidia.com/use-gpuuuid": text}, NVIDIA) == ANY


@pytest.mark.parametrize(
    ("vendor", "use_uuids", "use_types"),
    [
        ("amd", "amd.com/use-gpu-uuid", "amd.com/use-gputype"),
        ("ascend-910b4-1", "hami.io/use-Ascend910B4-1-uuid", ""),
        ("aws-neuroncore", "aws.amazon.com/use-neuron-uuid", ""),
        ("biren", "birentech.com/use-gpuuuid", "birentech.com/use-gputype"),
        ("cambricon", "cambricon.com/use-gpuuuid", "cambricon.com/use-mlutype"),
        ("enflame-shared", "enflame.com/use-gpuuuid", "enflame.com/use-gputype"),
        ("hygon", "hygon.com/use-gpuuuid", "hygon.com/use-dcutype"),
        ("iluvatar-mr-v100", "hami.io/use-MR-V100-uuid", ""),
        ("kunlun-vxpu", "hami.io/use-xpu-uuid", ""),
        ("metax-sgpu", "metax-tech.com/use-gpuuuid", "metax-tech.com/use-gputype"),
    ],
)
def test_every_vendor_has_the_keys_that_its_users_know(
    vendor: str, use_uuids: str, use_types: str
) -> None:
    keys = selector_annotations(VENDORS[vendor])
    assert (keys.use_uuids, keys.use_types) == (use_uuids, use_types)


@pytest.mark.parametrize("vendor", BUILT_IN, ids=lambda vendor: vendor.name)
def test_the_keys_of_hamis_vendors_stay_where_resources_are_renamed(vendor: Vendor) -> None:
    renamed = Vendor(name=vendor.name, count="example.com/card", memory="example.com/card-memory")
    assert selector_annotations(renamed) == selector_annotations(vendor)


def test_a_renamed_nvidia_is_chosen_by_hamis_constants(tmp_path: Path) -> None:
    """As `resourceCountName` in HAMi's device configuration: its annotations do not follow."""
    file = tmp_path / "vendors.yaml"
    file.write_text("- {name: nvidia, count: example.com/gpu, memory: example.com/gpumem}\n")
    [renamed] = select_vendors(["nvidia"], vendor_files.load(file))
    assert selector_annotations(renamed).names() == (
        "nvidia.com/use-gputype",
        "nvidia.com/nouse-gputype",
        "nvidia.com/use-gpuuuid",
        "nvidia.com/nouse-gpuuuid",
        "nvidia.com/vgpu-mode",
    )
    assert selector_of({"example.com/use-gputype": "A100"}, renamed) == ANY


def test_a_vendor_of_ones_own_has_keys_of_its_domain() -> None:
    own = Vendor(name="own", count="gpu.example.com/card")
    annotations = {"gpu.example.com/nouse-gpuuuid": "c-1"}
    assert selector_of(annotations, own) == DeviceSelector(nouse_uuids=("c-1",))


def test_a_list_without_end_is_refused() -> None:
    key = "nvidia.com/use-gpuuuid"
    assert isinstance(selector_of({key: "x," * (ITEMS_MAX - 1)}, NVIDIA), DeviceSelector)
    denial = selector_of({key: "x," * ITEMS_MAX}, NVIDIA)
    assert isinstance(denial, Denial)
    assert denial.reason is Reason.INVALID_POLICY
    assert denial.field == f"metadata.annotations[{key}]"
