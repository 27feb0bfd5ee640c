import time
import pytest
from tests.e2e.real_node.story.gpu_cluster import GpuCluster
from tests.e2e.real_node.story.api import wait_for
from tests.e2e.real_node.story.tenant_pod import tenant_pod, PodProgram
pytestmark = [pytest.mark.e2e, pytest.mark.install, pytest.mark.timeout(600)]

def test_probe(gpus: GpuCluster) -> None:
    gpus.api.must("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}})
    begun = time.monotonic()
    gpus.api.must("POST", "/api/v1/namespaces/team-a/pods", tenant_pod("web"))
    try:
        pod = wait_for(lambda: gpus.api.must("GET", "/api/v1/namespaces/team-a/pods/web"), lambda pod: pod["status"]["phase"] in ("Running","Failed"), within=60, what="runs")
    except AssertionError:
        print(gpus.cluster.kubectl.attempt("kubectl get events -A; kubectl get pods -A -o wide; kubectl -n gpuledger-nodes describe pods")[1])
        raise
    print(time.monotonic() - begun, pod["status"])
    with PodProgram(pod["status"]["podIP"]) as program:
        print(program.begun, program.do("fill"))
    print(gpus.node.given())
    import os
    if os.environ.get("HOLD"):
        while os.path.exists("/tmp/node-hold"): time.sleep(1)
