"""The generated kubelet API matches the protos here and the field numbers of the kubelet."""

from pathlib import Path

import pytest

from vgpu_native.plugin.kubelet import generate_stubs
from vgpu_native.plugin.kubelet.generated import deviceplugin_pb2, podresources_pb2

DEVICE_PLUGIN = {
    "Empty": {},
    "DevicePluginOptions": {"pre_start_required": 1, "get_preferred_allocation_available": 2},
    "RegisterRequest": {"version": 1, "endpoint": 2, "resource_name": 3, "options": 4},
    "ListAndWatchResponse": {"devices": 1},
    "Device": {"ID": 1, "health": 2, "topology": 3},
    "TopologyInfo": {"nodes": 1},
    "NUMANode": {"ID": 1},
    "PreferredAllocationRequest": {"container_requests": 1},
    "ContainerPreferredAllocationRequest": {
        "available_deviceIDs": 1,
        "must_include_deviceIDs": 2,
        "allocation_size": 3,
    },
    "PreferredAllocationResponse": {"container_responses": 1},
    "ContainerPreferredAllocationResponse": {"deviceIDs": 1},
    "AllocateRequest": {"container_requests": 1},
    "ContainerAllocateRequest": {"devices_ids": 1},
    "AllocateResponse": {"container_responses": 1},
    "ContainerAllocateResponse": {
        "envs": 1,
        "mounts": 2,
        "devices": 3,
        "annotations": 4,
        "cdi_devices": 5,
    },
    "Mount": {"container_path": 1, "host_path": 2, "read_only": 3},
    "DeviceSpec": {"container_path": 1, "host_path": 2, "permissions": 3},
    "CDIDevice": {"name": 1},
    "PreStartContainerRequest": {"devices_ids": 1},
    "PreStartContainerResponse": {},
}
POD_RESOURCES = {
    "ListPodResourcesRequest": {},
    "ListPodResourcesResponse": {"pod_resources": 1},
    "PodResources": {"name": 1, "namespace": 2, "containers": 3},
    "ContainerResources": {"name": 1, "devices": 2},
    "ContainerDevices": {"resource_name": 1, "device_ids": 2},
    "AllocatableResourcesRequest": {},
    "AllocatableResourcesResponse": {"devices": 1},
}


def test_the_generated_modules_are_the_committed_ones(tmp_path: Path) -> None:
    generate_stubs.generate(tmp_path)
    committed = Path(deviceplugin_pb2.__file__).parent
    made = {path.name: path.read_bytes() for path in (tmp_path / generate_stubs.PACKAGE).iterdir()}
    assert len(made) == 6
    for name, content in made.items():
        assert (committed / name).read_bytes() == content, f"{name}: run `make protos`"


@pytest.mark.parametrize(
    ("module", "package", "numbers"),
    [(deviceplugin_pb2, "v1beta1", DEVICE_PLUGIN), (podresources_pb2, "v1", POD_RESOURCES)],
)
def test_packages_messages_and_numbers_are_the_kubelets(module, package, numbers):
    assert module.DESCRIPTOR.package == package
    generated = {
        name: {field.name: field.number for field in message.fields}
        for name, message in module.DESCRIPTOR.message_types_by_name.items()
    }
    assert generated == numbers


def test_services_and_methods_are_the_kubelets() -> None:
    services = {
        service.full_name: sorted(method.name for method in service.methods)
        for module in (deviceplugin_pb2, podresources_pb2)
        for service in module.DESCRIPTOR.services_by_name.values()
    }
    assert services == {
        "v1beta1.Registration": ["Register"],
        "v1beta1.DevicePlugin": [
            "Allocate",
            "GetDevicePluginOptions",
            "GetPreferredAllocation",
            "ListAndWatch",
            "PreStartContainer",
        ],
        "v1.PodResourcesLister": ["GetAllocatableResources", "List"],
    }


def test_the_bytes_of_a_response_match_the_kubelets_encoding() -> None:
    # Written by hand from the encoding's rules: tag, length, content.
    answer = deviceplugin_pb2.ContainerAllocateResponse(
        envs={"A": "b"},
        mounts=[deviceplugin_pb2.Mount(container_path="/c", host_path="/h", read_only=True)],
        cdi_devices=[deviceplugin_pb2.CDIDevice(name="v/c=n")],
    )
    assert answer.SerializeToString() == (
        b"\x0a\x06\x0a\x01A\x12\x01b\x12\x0a\x0a\x02/c\x12\x02/h\x18\x01\x2a\x07\x0a\x05v/c=n"
    )
