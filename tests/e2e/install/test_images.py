"""The images of `make image`: labels, size, bill of materials, and containers of each.

`make image` itself refuses an image with a forbidden file: tools/image/contents.py.
"""

import hashlib
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gpuledger.version import VERSION
from tests.e2e.harness.cluster import Manifest
from tests.e2e.install.rig.real_cluster import RealCluster
from tools.image.archive import Archive, read_archive
from tools.image.recipe import TARGETS

pytestmark = [pytest.mark.e2e, pytest.mark.install, pytest.mark.timeout(300)]

SERVICE, AGENT, NATS = NAMES = ("gpuledger", "gpuledger-agent", "gpuledger-nats")
UID = 65532
COMPRESSED_MAX = 120_000_000
WITHIN = "--timeout=60s"
STATUS = "var/lib/dpkg/status"
BILLS = {target.image: target.bill for target in TARGETS}
LIBRARY = "opt/gpuledger/lib/libvgpu.so"
BINARIES = {
    SERVICE: ["opt/gpuledger/bin/nats-server"],
    AGENT: ["opt/gpuledger/bin/nats-server", LIBRARY],
    NATS: ["nats-server"],
}
WHEEL = re.compile(r"/site-packages/([^/]+)-([^-/]+)\.dist-info/METADATA$")
# /proc, /sys and /dev are the runtime's, and a pod has its token and hosts file as volumes.
WRITABLE = """
import json, os, sys
skipped = {"/proc", "/sys", "/dev", "/var/run/secrets", "/run/secrets"}
writable = []
for folder, folders, files in os.walk("/"):
    folders[:] = [f for f in folders if os.path.join(folder, f) not in skipped]
    paths = [folder, *(os.path.join(folder, f) for f in files)]
    writable += [p for p in paths if not os.path.islink(p) and os.access(p, os.W_OK)]
try:
    open("/opt/gpuledger/x", "w")
except OSError as refusal:
    reason = refusal.strerror
print(json.dumps([os.getuid(), os.getgid(), sorted(writable), reason]))
"""
PARTS_OF_THE_NODE = """
import ctypes, json
import google.protobuf, grpc, pynvml
from vgpu_native.plugin.kubelet.generated import deviceplugin_pb2
ctypes.CDLL("/opt/gpuledger/lib/libvgpu.so")
print(json.dumps(deviceplugin_pb2.DESCRIPTOR.package))
"""
PUBLISH = """
import asyncio, nats
async def main():
    client = await nats.connect("nats://log:4222", connect_timeout=5, max_reconnect_attempts=10)
    stream = client.jetstream()
    await stream.add_stream(name="test", subjects=["test"])
    print((await stream.publish("test", b"a record")).seq, client.connected_url.hostname)
    await client.close()
asyncio.run(asyncio.wait_for(main(), 30))
"""


class Inside(NamedTuple):
    """The SHA-256 of each file of an image, by path, and the status file of dpkg."""

    checksums: dict[str, str]
    status: str


@pytest.fixture(scope="module")
def archives(product_images: list[Path]) -> dict[str, Archive]:
    """Return the archives by the names of the images."""
    read = [read_archive(path) for path in product_images]
    return {archive.reference.rpartition("/")[2].partition(":")[0]: archive for archive in read}


@pytest.fixture(scope="module")
def cluster(shared_cluster: RealCluster, archives: dict[str, Archive]) -> RealCluster:
    """Import all images."""
    for archive in archives.values():
        shared_cluster.import_image(archive.path)
    return shared_cluster


@pytest.fixture(scope="module")
def inside(archives: dict[str, Archive]) -> dict[str, Inside]:
    """Read each archive once."""
    return {
        name: Inside(archive.checksums(), archive.read(STATUS).decode() if name != NATS else "")
        for name, archive in archives.items()
    }


def bill_beside(archive: Archive) -> Path:
    return archive.path.with_name(archive.path.name.replace(".oci.tar", ".cdx.json"))


def unlisted(name: str, inside: Inside, components: list[dict[str, Any]]) -> set[str]:
    """Return the Debian packages, wheels and binaries of an image that its bill does not list."""
    listed = {component.get("purl", "").partition("?")[0] for component in components}
    hashes = {item["content"] for component in components for item in component.get("hashes", [])}
    binaries = {path for path in BINARIES[name] if inside.checksums[path] not in hashes}
    wheels = {
        f"pkg:pypi/{re.sub('[-_.]+', '-', wheel[1]).lower()}@{wheel[2]}"
        for path in inside.checksums
        if (wheel := WHEEL.search(f"/{path}"))
    }
    packages = set()
    for paragraph in inside.status.split("\n\n"):
        if "\nStatus: install ok installed" in paragraph:
            fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if ": " in line)
            version = fields["Version"].replace(":", "%3A").replace("+", "%2B")
            packages.add(f"pkg:deb/debian/{fields['Package'].replace('+', '%2B')}@{version}")
    assert bool(wheels) == bool(packages) == (name != NATS)
    return binaries | ((wheels | packages) - listed)


def pod(name: str, image: str, *, root: bool = True, **container: Any) -> Manifest:
    """Return a pod of an image; with `root`, its root file system is read-only."""
    security = {
        "runAsNonRoot": True,  # with no number here, so that the image's user counts
        "readOnlyRootFilesystem": root,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    main = {"name": "main", "image": f"docker.io/library/{image}:{VERSION}"}
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {**spec, "containers": [{**main, "securityContext": security, **container}]},
    }


@pytest.mark.parametrize("name", NAMES)
def test_labels_and_user_are_those_of_the_product(name: str, archives: dict[str, Archive]) -> None:
    config = archives[name].config()["config"]
    labels = {key.rpartition(".")[2]: value for key, value in config["Labels"].items()}
    assert (labels["title"], labels["version"]) == (name, VERSION)
    assert labels["licenses"] == "Apache-2.0"
    assert config["User"] == f"{UID}:{UID}"


def test_the_service_is_small(archives: dict[str, Archive]) -> None:
    assert archives["gpuledger"].size <= COMPRESSED_MAX


@pytest.mark.parametrize("name", NAMES)
def test_the_bill_lists_everything_in_the_image(
    name: str, archives: dict[str, Archive], inside: dict[str, Inside]
) -> None:
    beside = bill_beside(archives[name]).read_bytes()
    assert inside[name].checksums[BILLS[name]] == hashlib.sha256(beside).hexdigest()
    assert unlisted(name, inside[name], json.loads(beside)["components"]) == set()


def test_a_component_removed_from_the_bill_is_missed(
    archives: dict[str, Archive], inside: dict[str, Inside]
) -> None:
    removed = {"grpcio", "libssl3", "libvgpu.so"}
    components = json.loads(bill_beside(archives[AGENT]).read_bytes())["components"]
    kept = [component for component in components if component["name"] not in removed]
    missed = {entry.partition("@")[0] for entry in unlisted(AGENT, inside[AGENT], kept)}
    assert missed == {"pkg:pypi/grpcio", "pkg:deb/debian/libssl3", LIBRARY}


@pytest.mark.parametrize("image", ["gpuledger", "gpuledger-agent"])
def test_containerd_runs_the_version_of_the_label(image: str, cluster: RealCluster) -> None:
    cluster.apply(pod(f"version-of-{image}", image, args=["--version"]))
    assert cluster.output("default", f"version-of-{image}").strip() == f"gpuledger {VERSION}"


def test_no_file_can_be_written_on_a_read_only_root(cluster: RealCluster) -> None:
    cluster.apply(pod("read-only", "gpuledger", command=["python3", "-c", WRITABLE]))
    uid, gid, writable, reason = json.loads(cluster.output("default", "read-only"))
    assert (uid, gid) == (UID, UID)
    assert writable == []
    assert reason == "Read-only file system"


def test_only_tmp_can_be_written_on_a_root_that_is_not_read_only(cluster: RealCluster) -> None:
    """The rights of the files are a second bound, and the test above can fail."""
    cluster.apply(pod("writable", "gpuledger", root=False, command=["python3", "-c", WRITABLE]))
    _, _, writable, reason = json.loads(cluster.output("default", "writable"))
    assert writable == ["/tmp"]
    assert reason == "Permission denied"


def test_the_agent_has_the_parts_of_the_node(cluster: RealCluster) -> None:
    cluster.apply(pod("node", "gpuledger-agent", command=["python3", "-c", PARTS_OF_THE_NODE]))
    assert json.loads(cluster.output("default", "node")) == "v1beta1"


def test_a_record_is_published_to_the_nats_server(cluster: RealCluster) -> None:
    server = pod(
        "log",
        "gpuledger-nats",
        args=["--jetstream", "--store_dir", "/data"],
        volumeMounts=[{"name": "data", "mountPath": "/data"}],
    )
    server["spec"] |= {
        "securityContext": {"fsGroup": UID},
        "volumes": [{"name": "data", "emptyDir": {}}],
    }
    ports = {"selector": {"app": "log"}, "ports": [{"port": 4222}]}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "log"}, "spec": ports}
    cluster.apply(server, service)
    cluster.kubectl.type(f"kubectl wait --for=condition=Ready pod/log {WITHIN}")
    cluster.apply(pod("client", "gpuledger", command=["python3", "-c", PUBLISH]))
    assert cluster.output("default", "client").strip() == "1 log"
