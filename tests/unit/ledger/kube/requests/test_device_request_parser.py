"""Device requests of pods: container by container, by the same rules as the demand."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from ledger.core.model.cards import Phase
from ledger.core.model.denials import Denial, Reason
from ledger.kube.api.objects import Pod
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.device_request_parser import device_request_of, invalid_device_request
from ledger.kube.requests.device_requests import DeviceRequest, DeviceSelector, PodDeviceRequest
from ledger.kube.requests.gpu_type_annotation import CardType
from ledger.kube.requests.pod_demand import demand_of
from ledger.kube.vendors.vendors import NVIDIA, select_vendors

GPU, MEMORY, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"
PERCENTAGE = "nvidia.com/gpumem-percentage"
RULES = DemandRules()


def container(limits: dict[str, Any] | None = None, name: str = "main", **more: Any) -> Any:
    return {"name": name, "resources": {"limits": limits or {}}, **more}


def pod(*containers: Any, **annotations: str) -> Pod:
    """Return a pod of these containers."""
    return pod_with((), *containers, **annotations)


def pod_with(init: Sequence[Any], *containers: Any, **annotations: str) -> Pod:
    """Return a pod of init and app containers."""
    spec = {"containers": list(containers), "initContainers": list(init)}
    return msgspec.convert({"metadata": {"annotations": annotations}, "spec": spec}, Pod)


def parsed(manifest: Pod, rules: DemandRules = RULES) -> PodDeviceRequest:
    request = device_request_of(manifest, rules)
    assert isinstance(request, PodDeviceRequest), request
    return request


def card(limits: dict[str, Any], rules: DemandRules = RULES) -> DeviceRequest:
    """Return the only device request of a pod of one container."""
    [[request]] = [slot.cards for slot in parsed(pod(container(limits)), rules).containers]
    return request


def test_memory_and_cores_are_per_card() -> None:
    asked = card({GPU: "2", MEMORY: "8k", CORES: "30"})
    assert asked == DeviceRequest("nvidia", 2, 8000, 0, 30, exclusive=False)


def test_a_percentage_leaves_the_memory_to_the_card() -> None:
    assert card({PERCENTAGE: "33"}) == DeviceRequest("nvidia", 1, 0, 33, 0, exclusive=False)


def test_memory_wins_over_a_percentage() -> None:
    assert card({MEMORY: "5", PERCENTAGE: "33"}) == DeviceRequest(
        "nvidia", 1, 5, 0, 0, exclusive=False
    )


@pytest.mark.parametrize("given", [{}, {PERCENTAGE: "100"}, {CORES: "100"}, {MEMORY: "0"}])
def test_device_request_is_exclusive_when_it_is_for_a_whole_card(given: dict[str, str]) -> None:
    assert card({GPU: "1", **given}) == DeviceRequest("nvidia", 1, 0, 100, 100, exclusive=True)


def test_device_request_is_exclusive_when_it_is_for_all_cores() -> None:
    assert card({GPU: "1", MEMORY: "5", CORES: "100"}).exclusive


@pytest.mark.parametrize("cores", ["0", "99"])
def test_all_memory_without_all_cores_can_be_shared(cores: str) -> None:
    assert not card({GPU: "1", CORES: cores}).exclusive


def test_the_defaults_are_those_of_the_demand() -> None:
    nvidia = msgspec.structs.replace(
        NVIDIA, default_memory=4000, default_cores=20, default_count=2, memory_factor=10
    )
    rules = DemandRules(vendors=(nvidia,))
    assert card({MEMORY: "7"}, rules) == DeviceRequest("nvidia", 2, 70, 0, 20, exclusive=False)
    assert card({CORES: "7"}, rules) == DeviceRequest("nvidia", 2, 4000, 0, 7, exclusive=False)


def test_slots_follow_the_device_plugin_and_include_idle_containers() -> None:
    init = [container(name="setup"), container({GPU: 1}, "side", restartPolicy="Always")]
    request = parsed(pod_with(init, container(name="idle"), container({GPU: 1}, "work")))
    assert [(slot.container, slot.phase, len(slot.cards)) for slot in request.containers] == [
        ("setup", Phase.INIT, 0),
        ("side", Phase.SIDECAR, 1),
        ("idle", Phase.APP, 0),
        ("work", Phase.APP, 1),
    ]
    assert request.wants_cards()


def test_device_request_ignores_annotations_when_the_pod_has_no_cards() -> None:
    manifest = pod(container(), **{"hami.io/node-scheduler-policy": "nonsense"})
    assert not parsed(manifest).wants_cards()
    assert invalid_device_request(manifest, RULES) is None


def test_cards_of_several_vendors_are_chosen_by_keys_of_their_own() -> None:
    rules = DemandRules(vendors=select_vendors(["nvidia", "hygon"]))
    manifest = pod(
        container({GPU: 1, MEMORY: 1, "hygon.com/dcunum": 1, "hygon.com/dcumem": 7}),
        **{"nvidia.com/use-gputype": "A100", "hygon.com/use-dcutype": "Z100"},
    )
    [request] = parsed(manifest, rules).containers
    assert {device.vendor: device.choice.use_types for device in request.cards} == {
        "nvidia": ("A100",),
        "hygon": ("Z100",),
    }


def test_cores_are_in_the_unit_in_which_cards_are_announced() -> None:
    rules = DemandRules(vendors=select_vendors(["mthreads"]))
    single = card({"mthreads.com/vgpu": 1, "mthreads.com/sgpu-core": 16}, rules)
    assert (single.cores, single.exclusive) == (16, True)
    two = card({"mthreads.com/vgpu": 2, "mthreads.com/sgpu-core": 4}, rules)
    assert (two.percentage, two.cores, two.exclusive) == (100, 16, True)


def test_request_is_exclusive_by_memory_when_whole_cores_are_unknown() -> None:
    rules = DemandRules(vendors=select_vendors(["ascend-910b2"]))
    count, memory = "huawei.com/Ascend910B2", "huawei.com/Ascend910B2-memory"
    assert card({count: 1}, rules).exclusive
    part = card({count: 1, memory: 9000}, rules)
    assert (part.memory, part.exclusive) == (16_384, False)


def test_device_request_is_denied_when_admission_refuses_the_demand() -> None:
    manifest = pod(container({GPU: 1, MEMORY: "16Gi"}))
    assert device_request_of(manifest, RULES) == demand_of(manifest, RULES)


@pytest.mark.parametrize("key", ["nvidia.com/use-gputype", "nvidia.com/gpu-type"])
def test_who_is_charged_as_a_type_gets_that_type(key: str) -> None:
    rules = DemandRules(types=(CardType("v100", 32_768),))
    manifest = pod(container({GPU: 1}), **{key: "v100"})
    request = parsed(manifest, rules)
    assert request.types == ("v100",)
    assert request.containers[0].cards[0].choice == DeviceSelector(use_types=("v100",))
    assert parsed(manifest).types == ()


def test_placement_annotation_is_refused_when_invalid_and_cards_requested() -> None:
    manifest = pod(container({GPU: 1}), **{"hami.io/node-scheduler-policy": "nonsense"})
    denial = device_request_of(manifest, RULES)
    assert isinstance(denial, Denial)
    assert denial.reason is Reason.INVALID_POLICY
    assert invalid_device_request(manifest, RULES) == denial
