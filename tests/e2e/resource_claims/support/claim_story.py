"""The way of a pod with a resource claim, in steps: `make e2e-dra` prints them."""

from typing import Final

from gpuledger.demo.narration import Narrator
from tests.e2e.harness.agreement import CLAIM_KEY
from tests.e2e.harness.polling import eventually
from tests.e2e.objects.pods import MEMORY
from tests.e2e.objects.team import SETTLED_SECONDS
from tests.e2e.resource_claims.support.claim_manifests import (
    ON_H100,
    claim,
    deployment_with,
    exactly,
    pod_with,
    template,
)
from tests.e2e.resource_claims.support.claim_supply import (
    API,
    H100_NODE,
    SMALL,
    SMALL_BOUND,
    SMALL_CONSUMED,
)
from tests.e2e.resource_claims.support.claim_team import ClaimTeam

LIMIT_MIB: Final = 30_720
CORES: Final = 20


class ClaimStory:
    """The way of a pod, with each step checked."""

    def __init__(self, team: ClaimTeam, teller: Narrator) -> None:
        self.team = team
        self.teller = teller

    async def go(self) -> None:
        """Go the whole way."""
        await self._supply()
        await self._template_and_denial()
        await self._pod()
        await self._allocation()
        await self._named_claim()
        await self._release()
        await self._deployment()
        await self._record()
        self.teller.closing(f"All {self.teller.claims} claims held.")

    async def _supply(self) -> None:
        teller, cluster = self.teller, self.team.cluster
        with teller.step("Read what the drivers published"):
            for each in await cluster.items(f"{API}/resourceslices"):
                for device in each["spec"]["devices"]:
                    memory = device.get("capacity", {}).get("memory")
                    if memory:
                        policy = memory.get("requestPolicy", {}).get("validRange", {})
                        steps = f", in steps of {policy['step']}" if policy else ", undivided"
                        where = f"{each['spec']['nodeName']:10}  {each['spec']['driver']:29}"
                        teller.line(f"{where}  {device['name']:6}  {memory['value']}{steps}")
            names = [
                each["metadata"]["name"] for each in await cluster.items(f"{API}/deviceclasses")
            ]
            teller.claim(f"the classes {', '.join(names)} exist")

    async def _template_and_denial(self) -> None:
        teller, team = self.teller, self.team
        with teller.step("Limit the namespace, write a template, and ask for more than the limit"):
            await team.open(memory=LIMIT_MIB, cards=10, cores=1000)
            teller.line(f"limits.{MEMORY}: {LIMIT_MIB:,} MiB")
            await team.make(template("part", exactly(memory=SMALL, cores=str(CORES))))
            teller.command("kubectl create -f template.yaml    # 7500Mi of a shared card")
            teller.command("kubectl create -f deployment.yaml    # 4 pods of this template")
            greedy = deployment_with("web", 4, templates=("part",))
            message = await team.refused(greedy, str(4 * SMALL_BOUND), str(LIMIT_MIB))
            teller.block(message)
            teller.claim("the user of the Deployment reads the denial, with numbers")
            await team.charge_is(memory=0, cards=0, cores=0)

    async def _pod(self) -> None:
        teller, team = self.teller, self.team
        with teller.step("Post a pod of the template that no node accepts yet"):
            await team.make(pod_with("web", templates=("part",), on=team.gate))
            await team.charge_is(memory=SMALL_BOUND, cards=1, cores=CORES)
            teller.claim(f"it is charged {SMALL_BOUND:,} MiB, the most that a card could consume")
        with teller.step("Let the controller make the claim"):
            [made] = await team.claims_are(1)
            await team.charge_is(memory=SMALL_BOUND, cards=1, cores=CORES)
            assert await team.holder(CLAIM_KEY + made["metadata"]["name"]) is None
            teller.claim(f"claim {made['metadata']['name']} belongs to the pod's charge: no more")

    async def _allocation(self) -> None:
        teller, team = self.teller, self.team
        with teller.step(f"Open node {H100_NODE}; kube-scheduler allocates"):
            await team.open_gate(H100_NODE)
            [allocated] = await team.allocated(1)
            [result] = allocated["status"]["allocation"]["devices"]["results"]
            teller.line(f"{result['driver']}/{result['pool']}/{result['device']}")
            teller.line(f"consumed: {result['consumedCapacity']}")
            await team.charge_is(memory=SMALL_CONSUMED, cards=1, cores=CORES)
            teller.claim(f"the charge is settled to {SMALL_CONSUMED:,} MiB")
            held = await team.holder("pods/web")
            assert held is not None
            [device] = held["devices"]
            card = f"GPU-{result['pool']}-{result['device'].rpartition('-')[2]}"
            assert (device["pool"], device["device"]) == (result["pool"], result["device"])
            assert (device["share"], device["card"]) == (result["shareID"], card)
            teller.claim(f"the ledger has card {card}, share {result['shareID']}")

    async def _named_claim(self) -> None:
        teller, team = self.teller, self.team
        with teller.step("Write a claim, and let two pods use it"):
            both = SMALL_BOUND + SMALL_CONSUMED
            await team.make(claim("own", exactly(memory=SMALL, cores=str(CORES))))
            await team.charge_is(memory=both, cards=2, cores=2 * CORES)
            teller.claim(f"the claim is charged itself: {both:,} MiB in sum, before a pod uses it")
            await team.make(*(pod_with(name, claims=("own",), on=ON_H100) for name in ("a", "b")))
            await team.allocated(2)
            await team.charge_is(memory=2 * SMALL_CONSUMED, cards=2, cores=2 * CORES)
            teller.claim(
                f"allocated and used by two pods, it is charged {SMALL_CONSUMED:,} MiB once"
            )

    async def _release(self) -> None:
        teller, team = self.teller, self.team
        with teller.step("Delete the pods, then the claim"):
            await team.remove("Pod", "web", "a", "b")
            await team.charge_is(memory=SMALL_BOUND, cards=1, cores=CORES)
            teller.claim(f"the claim that no pod uses is charged its bound, {SMALL_BOUND:,} MiB")
            await team.remove("ResourceClaim", "own")
            await team.charge_is(memory=0, cards=0, cores=0)
            teller.claim("everything is released")

    async def _deployment(self) -> None:
        teller, team = self.teller, self.team
        with teller.step("Write the Deployment with 3 pods, which fit"):
            teller.command("kubectl create -f deployment.yaml    # 3 pods of this template")
            with team.yard.paused_controllers():
                await team.make(deployment_with("web", 3, templates=("part",), on=ON_H100))
                await team.charge_is(memory=3 * SMALL_BOUND, cards=3, cores=3 * CORES)
            teller.claim(f"without a pod yet, it is charged {3 * SMALL_BOUND:,} MiB, three bounds")
            await team.allocated(3)
            await team.charge_is(memory=3 * SMALL_CONSUMED, cards=3, cores=3 * CORES)
            teller.claim(
                f"its pods are allocated, and the charge falls to {3 * SMALL_CONSUMED:,} MiB"
            )
        with teller.step("Scale it to 4 pods, then delete it"):
            teller.command("kubectl scale deployment web --replicas=4")
            scaled = await team.scale("web", 4)
            assert scaled.status == 403, scaled
            assert str(3 * SMALL_CONSUMED + SMALL_BOUND) in scaled.message, scaled.message
            teller.block(scaled.message)
            teller.claim("the 4th pod would need its bound beside what the others consume")
            await team.remove("Deployment", "web")
            await team.charge_is(memory=0, cards=0, cores=0)
            teller.claim("everything is released again")

    async def _record(self) -> None:
        teller, team = self.teller, self.team
        with teller.step("Read what the ledger has of all this"):
            events = await eventually(
                lambda: team.service.events(team.namespace),
                bool,
                within=SETTLED_SECONDS,
                what="the log has events",
            )
            for event in events:
                amounts = ", ".join(
                    f"{name} {amount:,}" for name, amount in event["amounts"].items()
                )
                text = f"{event['position']:4}  {event['type']:10}  {event['key']:40}  {amounts}"
                teller.line(text.rstrip())
