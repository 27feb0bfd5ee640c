"""Pods of a root whose claims are charged by themselves."""

from support.builders.settled_workloads import WEB, create, reserve
from support.claims.claim_settlement import claim_is_charged, pod_is_charged, settled_claims
from support.fakes.claimed_cluster import BOUND, generated, make_pod, reserve_key
from support.fakes.full_cluster import DEPLOYMENTS, REPLICASETS, deployment, reference, workload

from ledger.core.model.accounts import universe
from ledger.core.model.commands import SetLimits
from ledger.kube.api.api_resources import CLAIMS

LIMIT = "limits.nvidia.com/gpumem"


async def test_pod_keeps_its_root_when_its_claim_is_charged_by_itself() -> None:
    """Else the root loses its reviewed envelope, which shared quotas count, and its next pod."""
    async with settled_claims() as world:
        await world.writer.submit(
            SetLimits(universe("all"), ("c/red",), {LIMIT: 10**6}, asked_only=True)
        )
        await reserve(world, WEB, "web-uid", BOUND)
        web = deployment("web", 1)
        web["spec"]["template"]["spec"] = make_pod(world, "shape")["spec"]
        made = create(world, DEPLOYMENTS, web, "web-uid")
        owned = create(world, REPLICASETS, workload(REPLICASETS, "web-1", made), "rs-uid")
        await reserve(world, "pods/p", "p-uid", BOUND, root=WEB)
        pod = make_pod(world, "p", uid="p-uid", owners=(reference(owned),))
        await pod_is_charged(world, BOUND)
        assert world.entry("p").root == WEB

        name = f"{pod['metadata']['name']}-g-x"
        await reserve_key(world, f"{CLAIMS.name}/{name}", "claim-uid")
        generated(world, pod, uid="claim-uid")
        await claim_is_charged(world, name, BOUND)
        await pod_is_charged(world, {})
        assert world.entry("p").root == WEB
        assert world.state.used == [2 * BOUND["nvidia.com/gpumem"]]
