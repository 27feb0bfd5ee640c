"""While others place pods, too, nodes that have just room enough come after the others."""

from support.harness.extender_harness import CLUSTER, ExtenderReplica, cards, pod, replica

from extender.fit.inventory_fit import FitPreferences
from extender.inventory.assumed_placements import CONTESTED_SECONDS
from extender.scheduler_api.extender_wire import ExtenderArgs
from extender.scheduler_extender import ExtenderSettings
from ledger.core.model.cards import Part, Phase, Share
from ledger.core.model.commands import Place
from ledger.kube.api.objects import Pod

FULLEST = ExtenderSettings(FitPreferences(node_policy="binpack"))
THEIRS, OURS = pod("theirs", gpu=1, gpumem=8000), pod("ours", gpu=1, gpumem=8000)


async def ready(service: ExtenderReplica) -> None:
    """Two nodes with a card of 16,000 MiB each, and two pods."""
    await service.register("n1", cards("GPU-0"))
    await service.register("n2", cards("GPU-1"))
    await service.create(THEIRS, OURS)


async def placed_by_others(service: ExtenderReplica) -> None:
    """Half of the first node's card goes to a pod that this extender was not asked about."""
    meta = THEIRS.metadata
    where = f"{CLUSTER}/{meta.namespace}", f"pods/{meta.name}", meta.uid, f"{CLUSTER}/n1"
    share = Share("GPU-0", 8000, 0)
    await service.tell(Place(*where, (Part("main", Phase.APP, (share,)),)))


async def scores(service: ExtenderReplica, gpu_pod: Pod) -> dict[str, int]:
    args = ExtenderArgs(gpu_pod, None, ["n1", "n2"])
    await service.extender.filter(args)
    return {each.host: each.score for each in await service.extender.prioritize(args)}


async def test_fullest_node_is_best_again_when_no_other_extender_places_pods():
    async with replica(settings=FULLEST) as service:
        await ready(service)
        await placed_by_others(service)
        assert (await scores(service, OURS))["n1"] < 10
        service.ahead += CONTESTED_SECONDS
        assert (await scores(service, OURS))["n1"] == 10


async def test_nearly_full_node_comes_later_while_others_place_pods():
    async with replica(settings=FULLEST) as service:
        await ready(service)
        await placed_by_others(service)
        found_scores = await scores(service, OURS)
        assert found_scores["n2"] == 10
        assert 0 <= found_scores["n1"] < 5


async def test_where_every_node_has_room_for_one_more_only_the_best_one_is_best():
    async with replica(settings=FULLEST) as service:
        await service.register("n1", cards("GPU-0"))
        await service.register("n2", cards("GPU-1", memory=12_000))
        await service.create(THEIRS, OURS)
        await placed_by_others(service)
        assert max((await scores(service, OURS)).values()) == 10


async def test_own_placements_are_not_surprises():
    async with replica(settings=FULLEST) as service:
        await ready(service)
        await scores(service, THEIRS)
        await placed_by_others(service)
        assert service.inventory.surprises == 0
