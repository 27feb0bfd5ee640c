"""HAMi's own scheduler tests, put to this extender with other values.

docs/reference/hami-differences.md lists the intended differences.
"""

import json
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest
from support.builders.mig_cards import mig
from support.harness.extender_over_http import HttpExtender, container, http_extender, listed, pod

LITTLE = container(gpu=1, gpumem=1_000, gpucores=10)
WHOLE = container(gpu=1)
MUTEX = {"hami.io/gpu-scheduler-policy": "mutex"}
USE, NOUSE = "nvidia.com/use-gpuuuid", "nvidia.com/nouse-gpuuuid"
KIND, OTHER = "nvidia.com/use-gputype", "nvidia.com/nouse-gputype"


@pytest.fixture
async def site() -> AsyncIterator[HttpExtender]:
    async with http_extender() as extender:
        yield extender


@pytest.mark.parametrize(
    ("cards", "there", "asked", "annotations", "reason"),
    [
        ([{"health": False}], [], LITTLE, {}, "CardNotHealthy"),
        ([{"type": "NVIDIA H100"}], [], LITTLE, {KIND: "A100,t4"}, "CardTypeMismatch"),
        ([{"type": "NVIDIA H100"}], [], LITTLE, {OTHER: " h100 ,"}, "CardTypeMismatch"),
        ([{}], [], LITTLE, {"nvidia.com/vgpu-mode": "mps"}, "CardTypeMismatch"),
        ([{}], [], LITTLE, {USE: "GPU-9, GPU-8"}, "CardUuidMismatch"),
        ([{}], [], LITTLE, {USE: "GPU-0", NOUSE: "GPU-0"}, "CardUuidMismatch"),
        ([{"count": 2}], [LITTLE, LITTLE], LITTLE, {}, "CardTimeSlicingExhausted"),
        ([{"count": 0}], [], LITTLE, {}, "CardTimeSlicingExhausted"),
        ([{}], [LITTLE], LITTLE, MUTEX, "ExclusiveDeviceAllocateConflict"),
        ([{}], [], container(gpu=1, gpumem=16_001), {}, "CardInsufficientMemory"),
        ([{}], [LITTLE], container(gpu=1, gpumem=15_001), {}, "CardInsufficientMemory"),
        ([{}], [LITTLE], container(gpu=1, gpumem_percentage=94), {}, "CardInsufficientMemory"),
        ([{}], [LITTLE], WHOLE, {}, "CardInsufficientMemory"),
        ([{}], [LITTLE], container(gpu=1, gpumem=1, gpucores=91), {}, "CardInsufficientCore"),
        ([{}], [LITTLE], container(gpu=1, gpumem=1, gpucores=100), {}, "CardInsufficientCore"),
        (
            [{}],
            [container(gpu=1, gpumem=1)],
            container(gpu=1, gpumem=1, gpucores=100),
            {},
            "ExclusiveDeviceAllocateConflict",
        ),
        (
            [{"devcore": 200}],
            [container(gpu=1, gpumem=1)],
            container(gpu=1, gpumem=1, gpucores=100),
            {},
            "ExclusiveDeviceAllocateConflict",
        ),
        (
            [{"devcore": 200, "devmem": 32_000}],
            [container(gpu=1, gpumem=1, gpucores=100)],
            LITTLE,
            {},
            "ExclusiveDeviceAllocateConflict",
        ),
        (
            [{}],
            [container(gpu=1, gpumem=1, gpucores=100)],
            container(gpu=1, gpumem=1),
            {},
            "CardComputeUnitsExhausted",
        ),
        ([mig()], [], container(gpu=1, gpumem=20_000), {}, "CardMigTopologyInfeasible"),
    ],
)
async def test_the_first_rule_that_a_card_breaks_is_named(
    site: HttpExtender, cards: Any, there: Any, asked: Any, annotations: Any, reason: str
) -> None:
    await site.announce("n1", listed(*cards))
    for number, resident in enumerate(there):
        await site.bind(pod(f"before-{number}", resident))
    assert await site.why_not(pod("a", asked, annotations=annotations)) == f"1/1 {reason}"


async def test_reasons_of_several_cards_are_counted(site: HttpExtender) -> None:
    ill, small = {"health": False}, {"devmem": 500}
    await site.announce("n1", listed(ill, small, ill, small, {"count": 0}, small), CORDON="GPU-1,")
    counted = "2/6 CardNotHealthy, 2/6 CardInsufficientMemory, 1/6 CardCordoned"
    assert await site.why_not(pod("a", LITTLE)) == f"{counted}, 1/6 CardTimeSlicingExhausted"


async def test_too_few_cards_have_another_reason_than_unfit_cards(site: HttpExtender) -> None:
    await site.announce("n1", listed({}, {"health": False}))
    two, three = (pod("a", container(gpu=count, gpumem=100)) for count in (2, 3))
    partly = "1/2 CardNotHealthy, 1/2 AllocatedCardsInsufficientRequest"
    assert await site.why_not(two) == partly
    assert await site.why_not(three) == "NodeInsufficientDevice"
    assert await site.why_not(two, "n2") == "NodeUnregistered"


@pytest.mark.parametrize("cards", [[{}, {}], [{}, mig()]])
async def test_more_cards_than_any_node_has_are_refused_at_once(
    site: HttpExtender, cards: Any
) -> None:
    await site.announce("n1", listed(*cards))
    for count in (9, 1_000_000_000):
        many = container(gpu=count, gpumem=100)
        assert await site.why_not(pod("a", many)) == "NodeInsufficientDevice"


async def test_a_cordoned_card_is_passed_over_and_what_runs_there_stays(site: HttpExtender) -> None:
    await site.announce("n1", listed({}, {}))
    first = await site.cards(pod("a", LITTLE, annotations={USE: "GPU-0"}))
    await site.announce("n1", listed({}, {}), CORDON=" , GPU-0 ")
    assert [*first, *await site.cards(pod("b", LITTLE))] == ["GPU-0", "GPU-1"]
    assert site.replica.placed("a") is not None


@pytest.mark.parametrize(
    ("policy", "expected"), [("binpack", ["GPU-0", "GPU-0"]), ("spread", ["GPU-0", "GPU-1"])]
)
async def test_cards_are_filled_or_shared_out(
    site: HttpExtender, policy: str, expected: Any
) -> None:
    await site.announce("n1", listed({}, {}))
    wanted = {"hami.io/gpu-scheduler-policy": policy}
    gpu_pod = pod("a", LITTLE, LITTLE, annotations=wanted)
    assert await site.cards(gpu_pod) == expected
    again = pod("b", LITTLE, annotations=wanted)
    assert await site.cards(again) == ["GPU-0"]


@pytest.mark.parametrize(("policy", "best"), [("binpack", "n1"), ("spread", "n2"), ("", "n1")])
async def test_nodes_are_filled_or_shared_out(site: HttpExtender, policy: str, best: str) -> None:
    await site.announce("n1", listed({}, {}))
    await site.announce("n2", listed({"id": "GPU-8"}, {"id": "GPU-9"}))
    await site.bind(pod("before", LITTLE))
    gpu_pod = pod("a", LITTLE, annotations={"hami.io/node-scheduler-policy": policy})
    assert await site.fits(gpu_pod, "n1", "n2") == ["n1", "n2"]
    scores = await site.scores(gpu_pod, "n1", "n2")
    assert scores == {name: 10 * (name == best) for name in ("n1", "n2")}


@pytest.mark.parametrize(
    ("weights", "fuller"),
    [("slot=1,core=0,memory=0", "GPU-0"), ("slot=0,core=0,memory=1", "GPU-1")],
)
async def test_weights_define_the_fullness_of_a_card(
    site: HttpExtender, weights: str, fuller: str
) -> None:
    await site.announce("n1", listed({}, {}))
    for number in range(3):
        await site.bind(pod(f"many-{number}", LITTLE, annotations={USE: "GPU-0"}))
    await site.bind(pod("large", container(gpu=1, gpumem=8_000), annotations={USE: "GPU-1"}))
    wanted = {
        "hami.io/gpu-scheduler-policy": "binpack",
        "hami.io/device-scoring-weights": weights,
    }
    assert await site.cards(pod("a", LITTLE, annotations=wanted)) == [fuller]


@pytest.mark.parametrize("word", ["true", "1", "True", "T"])
async def test_cards_of_a_bound_container_are_on_one_numa_node(
    site: HttpExtender, word: str
) -> None:
    numbers = (0, 1, 1, 0, 2)
    await site.announce("n1", listed(*({"numa": number} for number in numbers)))
    bound = {"nvidia.com/numa-bind": word}
    two = await site.cards(pod("a", container(gpu=2, gpumem=100), annotations=bound))
    assert len({numbers[int(uuid[-1])] for uuid in two}) == 1
    three = pod("b", container(gpu=3, gpumem=100), annotations=bound)
    assert await site.why_not(three) == "5/5 NumaNotFit"


async def test_a_numa_node_is_preferred_where_it_is_a_policy(site: HttpExtender) -> None:
    await site.announce("n1", listed({"numa": 1}, {"numa": 0}, {"numa": 1}, {"numa": 0}))
    for policy in ("numa", "numa,spread", "numa,binpack"):
        wanted = {"hami.io/gpu-scheduler-policy": policy}
        gpu_pod = pod(policy.replace(",", "-"), container(gpu=2, gpumem=100), annotations=wanted)
        assert await site.cards(gpu_pod) in (["GPU-1", "GPU-3"], ["GPU-0", "GPU-2"])


async def test_only_unused_cards_will_do_where_the_policy_is_mutex(site: HttpExtender) -> None:
    await site.announce("n1", listed({}, {}))
    await site.bind(pod("before", LITTLE, annotations={USE: "GPU-0"}))
    assert await site.cards(pod("a", LITTLE, annotations=MUTEX)) == ["GPU-1"]
    assert await site.fits(pod("b", LITTLE, annotations=MUTEX)) == []
    assert await site.fits(pod("c", LITTLE)) == ["n1"]


@pytest.mark.parametrize(("count", "expected"), [(1, {1}), (2, {0, 2}), (3, {0, 1, 2})])
async def test_the_best_linked_cards_go_together_and_the_worst_goes_alone(
    site: HttpExtender, count: int, expected: set[int]
) -> None:
    links = {("0", "1"): 30, ("0", "2"): 90, ("1", "2"): 40}
    scores = [
        {
            "uuid": f"GPU-{digit}",
            "score": {
                f"GPU-{x if y == digit else y}": s for (x, y), s in links.items() if digit in x + y
            },
        }
        for digit in "012"
    ]
    await site.announce("n1", listed({}, {}, {}), PAIR_SCORES=json.dumps(scores))
    wanted = {"hami.io/gpu-scheduler-policy": "topology-aware"}
    gpu_pod = pod("a", container(gpu=count, gpumem=100), annotations=wanted)
    assert {int(uuid[-1]) for uuid in await site.cards(gpu_pod)} == expected


async def test_init_containers_run_one_after_the_other_and_before_the_others(
    site: HttpExtender,
) -> None:
    await site.announce("n1", listed({}))
    large = container(gpu=1, gpumem=10_000, gpucores=60)
    gpu_pod = pod("a", large, init=(large, container(), large))
    slot = "GPU-0,NVIDIA,10000,60:;"
    assert await site.bind(gpu_pod) == f"{slot};{slot}{slot}"
    assert await site.why_not(pod("b", container(gpu=1, gpumem=6_001))) == (
        "1/1 CardInsufficientMemory"
    )
    assert await site.fits(pod("c", container(gpu=1, gpumem=6_000, gpucores=40))) == ["n1"]


@pytest.mark.parametrize(
    ("init", "app", "reason"),
    [
        (container(gpu=1, gpumem=16_001), LITTLE, "1/1 CardInsufficientMemory"),
        (container(gpu=1, gpumem=10, gpucores=30), LITTLE, "1/1 CardInsufficientCore"),
        (container(gpu=2, gpumem=10), LITTLE, "NodeInsufficientDevice"),
    ],
)
async def test_a_node_that_cannot_bear_an_init_container_is_out(
    site: HttpExtender, init: Any, app: Any, reason: str
) -> None:
    await site.announce("n1", listed({}))
    await site.bind(pod("before", container(gpu=1, gpumem=10, gpucores=80)))
    assert await site.why_not(pod("a", app, init=(init,))) == reason


async def test_an_init_container_may_have_more_cards_than_the_others(site: HttpExtender) -> None:
    await site.announce("n1", listed({}, {}))
    gpu_pod = pod("a", LITTLE, init=(container(gpu=2, gpumem=1_000, gpucores=10),))
    init, app, _ = (await site.bind(gpu_pod)).split(";")
    assert init.count("GPU-") == 2
    assert app in init


async def test_a_sidecar_runs_beside_the_others(site: HttpExtender) -> None:
    await site.announce("n1", listed({}))
    sidecar = container(gpu=1, gpumem=8_000, restart=True)
    assert await site.fits(pod("a", container(gpu=1, gpumem=8_000), init=(sidecar,))) == ["n1"]
    too_large = pod("b", container(gpu=1, gpumem=8_001), init=(sidecar,))
    assert await site.why_not(too_large) == "1/1 CardInsufficientMemory"


@pytest.mark.parametrize("model", ["NVIDIA", "NVIDIA A10", "NVIDIA-Tesla P4"])
async def test_every_container_has_a_slot_for_any_model_name(
    site: HttpExtender, model: str
) -> None:
    await site.announce("n1", listed({"type": model}))
    gpu_pod = pod("a", container(), LITTLE, container(), init=(container(),))
    assert await site.bind(gpu_pod) == ";;GPU-0,NVIDIA,1000,10:;;"


async def test_what_is_asked_is_written_in_mib_and_percent_of_each_card(site: HttpExtender) -> None:
    await site.announce("n1", listed({"devmem": 10_001}, {"devmem": 20_001}))
    gpu_pod = pod("a", container(gpu=2, gpumem_percentage=50, gpucores=30))
    assert sorted((await site.bind(gpu_pod)).rstrip(";:").split(":")) == [
        "GPU-0,NVIDIA,5000,30",
        "GPU-1,NVIDIA,10000,30",
    ]


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        (container(gpu=1), "16000,100"),
        (container(gpu=1, gpumem_percentage=100), "16000,100"),
        (container(gpu=1, gpucores=70), "16000,70"),
        (container(gpu=1, gpumem=8_192), "8192,0"),
        (container(gpu=1, gpumem=10, gpumem_percentage=50), "10,0"),
        (container(gpu=1, gpumem=0, gpumem_percentage=50), "8000,0"),
        (container(gpu=1, gpumem=0), "16000,100"),
        (container(gpumem=512), "512,0"),
        (container(gpucores=20), "16000,20"),
        (container(gpumem_percentage=10), "1600,0"),
    ],
)
async def test_what_is_left_out_is_filled_in(site: HttpExtender, asked: Any, given: str) -> None:
    await site.announce("n1", listed({}))
    assert await site.bind(pod("a", asked)) == f"GPU-0,NVIDIA,{given}:;"


async def test_requests_stand_in_for_limits(site: HttpExtender) -> None:
    await site.announce("n1", listed({}))
    resources = container(gpu=1, gpumem=700, gpucores=5)["resources"]
    gpu_pod = pod("a", {"resources": {"requests": resources["limits"]}})
    assert await site.bind(gpu_pod) == "GPU-0,NVIDIA,700,5:;"


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (container(gpu=1, gpumem="16Gi"), "InvalidQuantity"),
        (container(gpu=1, gpumem="1.5"), "InvalidQuantity"),
        (container(gpu=1, gpumem=-1), "InvalidQuantity"),
        (container(gpu=1, gpumem_percentage=150), "InvalidPercentage"),
        (container(gpu=1, gpumem_percentage=0), "InvalidPercentage"),
        (container(gpu=1, gpumem=1, gpucores=120), "InvalidCores"),
    ],
)
async def test_what_cannot_be_understood_is_never_taken_for_less(
    site: HttpExtender, asked: Any, reason: str
) -> None:
    await site.announce("n1", listed({}))
    assert (await site.why_not(pod("a", asked))).startswith(reason)


async def test_two_containers_of_a_pod_may_share_a_card_or_not_fit_on_it(
    site: HttpExtender,
) -> None:
    await site.announce("n1", listed({}))
    half = container(gpu=1, gpumem=8_000, gpucores=50)
    assert await site.fits(pod("a", half, half)) == ["n1"]
    assert await site.why_not(pod("b", half, container(gpu=1, gpumem=8_001))) == (
        "1/1 CardInsufficientMemory"
    )


async def test_a_card_of_which_a_share_is_more_than_quotas_allow_is_passed_over(
    site: HttpExtender,
) -> None:
    await site.announce("n1", listed({}, {"devmem": 8_000}))
    await site.limit(gpumem=9_000)
    single, two = (
        pod(f"of-{count}", container(gpu=count, gpumem_percentage=60)) for count in (1, 2)
    )
    await site.create(two)
    reason = "1/2 ResourceQuotaNotFit, 1/2 AllocatedCardsInsufficientRequest"
    assert await site.why_not(two) == reason
    assert await site.cards(single) == ["GPU-1"]


async def test_instances_of_an_a100_lie_so_that_all_of_a_balanced_layout_fit(
    site: HttpExtender,
) -> None:
    await site.announce("n1", listed(mig()))
    instances = []
    for number, memory in enumerate((19_000, 9_000, 4_000, 4_000)):
        name = f"p-{number}"
        await site.bind(pod(name, container(gpu=1, gpumem=memory)))
        text = (site.server.pods[name].metadata.annotations or {})["hami.io/vgpu-mig-allocations"]
        [allocation] = json.loads(text)
        instances.append(
            (
                allocation["profile"],
                allocation["placement"]["start"],
                allocation["placement"]["size"],
            )
        )
    assert instances == [("3g.20gb", 4, 4), ("2g.10gb", 0, 2), ("1g.5gb", 3, 1), ("1g.5gb", 2, 1)]
    reason = await site.why_not(pod("last", container(gpu=1, gpumem=1_000)))
    assert reason == "1/1 CardMigTopologyInfeasible"


async def test_the_smallest_instance_that_bears_the_request_is_booked_whole(
    site: HttpExtender,
) -> None:
    await site.announce("n1", listed(mig()))
    two = await site.bind(pod("a", container(gpu=2, gpumem=5_000)))
    assert two == "GPU-0,NVIDIA,9856,28:GPU-0,NVIDIA,9856,28:;"
    quarter = await site.bind(pod("b", container(gpu=1, gpumem_percentage=10)))
    assert quarter == "GPU-0,NVIDIA,4864,14:;"


async def test_a_card_that_is_cut_may_be_asked_for_by_its_mode(site: HttpExtender) -> None:
    await site.announce("n1", listed({}, mig()))
    small = container(gpu=1, gpumem=4_000)
    for number, (mode, uuid) in enumerate((("hami-core", "GPU-0"), ("mig", "GPU-1"))):
        gpu_pod = pod(f"p-{number}", small, annotations={"nvidia.com/vgpu-mode": mode})
        assert await site.cards(gpu_pod) == [uuid]


async def test_the_older_form_of_cards_is_as_good_as_json(site: HttpExtender) -> None:
    seven = "GPU-a,10,7680,100,NVIDIA-Tesla P4,0,true:"
    nine = "GPU-b,10,7680,100,NVIDIA-Tesla P4,1,true,1,hami-core:"
    await site.announce("n1", seven + nine)
    assert set(await site.cards(pod("a", container(gpu=2, gpumem=7_680)))) == {"GPU-a", "GPU-b"}


async def test_what_is_released_is_free_for_others(site: HttpExtender) -> None:
    await site.announce("n1", listed({"count": 1}))
    pods = [pod(f"p-{number}", WHOLE) for number in range(3)]
    for holder, following in pairwise(pods):
        assert await site.fits(holder) == ["n1"]
        await site.bind(holder)
        assert await site.fits(following) == []
        await site.ended(holder)
