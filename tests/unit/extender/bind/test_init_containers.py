"""A pod whose init containers alone ask for cards is bound like any other."""

import msgspec
from support.harness.extender_harness import ModelServer, cards, replica
from support.harness.extender_over_http import container, pod

from ledger.core.model.cards import HAMI
from ledger.kube.api.objects import ApiNode, ObjectMeta, Pod


async def test_a_node_of_hami_is_locked_also_where_only_an_init_container_asks():
    server = ModelServer()
    server.nodes["n1"] = ApiNode(ObjectMeta(name="n1", resource_version="5"))
    gpu_pod = msgspec.convert(pod("a", container(), init=(container(gpu=1, gpumem=10),)), Pod)
    server.add(gpu_pod)
    async with replica(server=server) as service:
        await service.register("n1", cards("GPU-0"), HAMI)
        await service.create(gpu_pod)
        assert await service.bind(gpu_pod, "n1") == ""
        annotations = server.nodes["n1"].metadata.annotations or {}
        assert annotations["hami.io/mutex.lock"].endswith(",team,a")
