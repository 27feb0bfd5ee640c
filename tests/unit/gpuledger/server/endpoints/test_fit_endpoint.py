"""`POST /v1/fit`: the report of the command, for tenants without names of others."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx2
import msgspec
import pytest
import yaml
from msgspec import structs
from starlette.applications import Starlette
from support.builders.decide_and_fold import apply
from support.claims.kept_slices import NVIDIA

from extender.settlement.allocated_devices.offered_cards import OfferedCards
from gpuledger.manifest_fit.fit_report import PodFit
from gpuledger.manifest_fit.manifest_pods import PodCardRequest
from gpuledger.server.endpoints import live_fit
from gpuledger.server.endpoints.fit_endpoint import FitEndpoint
from gpuledger.server.endpoints.live_fit import LiveFit
from gpuledger.server.endpoints.live_offers import LiveOffers
from gpuledger.server.follower.card_answers import CardAnswer, CardAnswers, CardQuestion
from gpuledger.server.follower.follower_supervisor import FollowerUnavailable
from gpuledger.server.follower.unsent_offers import OfferMessage, UnsentOffers
from gpuledger.storage.past_ledger import PastLedger
from gpuledger.wiring import admission_from_settings
from ledger.core.model import commands
from ledger.core.model.cards import OWN, Card, Part, Phase, Share
from ledger.core.model.state import State
from ledger.kube.requests.device_requests import (
    ContainerDeviceRequests,
    DeviceRequest,
    PodDeviceRequest,
)
from ledger.log.records import Record
from ledger.runtime.http.token_reviews import TokenGuard
from ledger.runtime.http.v1_access import AccessRequired
from ledger.runtime.settings.settings import Settings
from webhook.admission.validating_webhook import ValidatingWebhook

GPU, MEMORY = "nvidia.com/gpu", "nvidia.com/gpumem"
SECRETS = ("rival", "gpu-node-1", "gpu-node-2", "GPU-a", "GPU-b")
"""Names that a tenant of namespace team must not see."""


def held(space: str, name: str, node: str, uuid: str, memory: int) -> list[commands.AnyCommand]:
    pod = (f"local/{space}", f"pods/{name}", name)
    part = Part("main", Phase.APP, (Share(uuid, memory, 0),))
    return [commands.Reserve(*pod, {GPU: 1}), commands.Place(*pod, f"local/{node}", (part,))]


def card(uuid: str) -> Card:
    return Card(uuid, 0, "A100", 16_000, 100, 10)


FLEET: list[commands.AnyCommand] = [
    commands.SetLimits("quota/local/team/gpus", ("local/team",), {f"limits.{MEMORY}": 40_000}),
    commands.RegisterCards("local/gpu-node-1", OWN, (card("GPU-a"),)),
    commands.RegisterCards("local/gpu-node-2", OWN, (card("GPU-b"),)),
    *held("rival", "secret-job", "gpu-node-1", "GPU-a", 9_000),
    *held("team", "own-job", "gpu-node-2", "GPU-b", 10_000),
]


ONE_CARD = DeviceRequest("nvidia", 1, 8_000, 0, 0, exclusive=False)


class Folded:
    """A log that is folded here."""

    def __init__(self) -> None:
        self.state = State()
        for command in FLEET:
            assert apply(self.state, command)

    def subscribe(self, callback: Callable[[Record], None]) -> None:
        """Send nothing: no record follows."""


class Follower:
    """The follower process, in this one: questions and answers pass through JSON."""

    def __init__(self) -> None:
        self.cards = CardAnswers(Settings())
        self.folded = Folded()
        self.gate = asyncio.Event()
        self.gate.set()

    async def ask(
        self,
        requests: list[PodCardRequest],
        *,
        within: str,
        nodes_max: int,
        offers: UnsentOffers | None,
        position: int,
        seconds: float,
    ) -> CardAnswer:
        await self.gate.wait()
        for message in offers.messages(self) if offers is not None else ():
            sent = msgspec.json.encode(message)
            self.cards.take_offers(msgspec.json.decode(sent, type=OfferMessage))
        asked = msgspec.json.encode(CardQuestion(1, requests, within, nodes_max, position, seconds))
        answer = await self.cards.answer(msgspec.json.decode(asked, type=CardQuestion))
        if answer.problem:
            raise FollowerUnavailable(answer.problem)
        return msgspec.json.decode(msgspec.json.encode(answer), type=CardAnswer)


class Reviewer:
    """Grants `create fit` in namespace team to all users, and `list` to the admin.

    The user `cards` may list the cards of all namespaces, and no holders.
    """

    async def review(self, token: str) -> str | None:
        return token

    async def may(self, caller: str, verb: str, resource: str, namespace: str) -> bool:
        if (verb, resource, namespace) == ("create", "fit", "team"):
            return True
        if caller == "unreachable":
            raise ConnectionError("no route")
        listed = {"admin": ("cards", "holders"), "cards": ("cards",)}.get(caller, ())
        return verb == "list" and resource in listed and not namespace


@pytest.fixture
def follower() -> Follower:
    follower = Follower()
    follower.cards.start(follower.folded)
    return follower


class Slices:
    """Offered cards, and whether the slices are listed."""

    def __init__(self) -> None:
        self.offered, self.is_listed = OfferedCards(), False


@pytest.fixture
def slices() -> Slices:
    return Slices()


@pytest.fixture
def app(follower: Follower, slices: Slices) -> AccessRequired[str]:
    settings = Settings()
    ledger = PastLedger(Folded().state)
    validating = ValidatingWebhook(
        ledger,
        settings=admission_from_settings.admission_settings(settings),
        context=admission_from_settings.cluster_context(settings, ledger),
    )
    asked: Any = lambda: follower  # noqa: E731
    live = LiveFit(
        validating,
        settings,
        follower=asked,
        position=lambda: ledger.state.position,
        offers=LiveOffers(
            "local",
            slices.offered,
            is_listed=lambda: slices.is_listed,
            position=lambda: ledger.state.position,
        ),
    )
    routes = [FitEndpoint(live, settings).route()]
    return AccessRequired(Starlette(routes=routes), TokenGuard(Reviewer()), cluster="local")


def pod(memory: int, count: int = 1) -> dict[str, Any]:
    limits = {GPU: str(count), MEMORY: str(memory)}
    spec = {"containers": [{"name": "main", "resources": {"limits": limits}}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "job"}, "spec": spec}


async def ask(
    app: Any, manifest: Any, *, token: str = "tenant", query: str = "?namespace=team"
) -> httpx2.Response:
    body = manifest if isinstance(manifest, str | bytes) else yaml.safe_dump(manifest)
    transport = httpx2.ASGITransport(app, client=("203.0.113.9", 4711))
    headers = {"authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(transport=transport, base_url="https://ledger") as client:
        return await client.post(f"/v1/fit{query}", content=body, headers=headers)


async def test_a_caller_who_may_list_cards_gets_nodes_cards_and_pods(app: Any) -> None:
    answer = await ask(app, pod(8_000), token="admin")
    report = answer.json()
    assert answer.status_code == 200, answer.text
    assert (report["fits"], report["allowed"], report["restricted"]) == (False, True, False)
    (fitted,) = report["pods"]
    assert {node["node"] for node in fitted["nodes"]} == {"gpu-node-1", "gpu-node-2"}
    assert [change["text"] for change in fitted["changes"]] == [
        "evict rival/secret-job (9000 MiB) from gpu-node-1",
        "ask for at most 7000 MiB of each card instead of 8000: it would fit on gpu-node-1",
    ]
    assert answer.headers["gpuledger-position"] == str(report["position"])


async def test_a_tenant_sees_neither_nodes_nor_cards_nor_pods_of_others(app: Any) -> None:
    answer = await ask(app, pod(8_000))
    assert answer.status_code == 200, answer.text
    report = answer.json()
    (fitted,) = report["pods"]
    assert report["restricted"]
    assert not [secret for secret in SECRETS if secret in answer.text.replace("gpu-node-2", "", 3)]
    assert fitted["nodes"] == []
    assert (fitted["fitting"], fitted["total"]) == (0, 2)
    assert fitted["reasons"] == [{"reason": "1/1 CardInsufficientMemory", "nodes": 2}]


async def test_a_tenant_may_evict_only_its_own_pods(app: Any) -> None:
    """Its own pod is named although an eviction of the smaller pod of another would do."""
    (fitted,) = (await ask(app, pod(8_000))).json()["pods"]
    assert [change["text"] for change in fitted["changes"]] == [
        "evict team/own-job (10000 MiB) from gpu-node-2",
        "ask for at most 7000 MiB of each card instead of 8000: it would fit on 1 node",
    ]


async def test_a_tenant_learns_on_how_many_nodes_a_pod_fits(app: Any) -> None:
    answer = await ask(app, pod(5_000))
    (fitted,) = answer.json()["pods"]
    assert (fitted["fits"], fitted["fitting"], fitted["nodes"]) == (True, 2, [])
    assert not [secret for secret in SECRETS if secret in answer.text]


@pytest.mark.parametrize("query", ["", "?namespace=rival"])
async def test_a_tenant_may_not_ask_about_other_namespaces(app: Any, query: str) -> None:
    assert (await ask(app, pod(1), query=query)).status_code == 403


async def test_an_object_of_another_namespace_is_refused(app: Any) -> None:
    manifest = pod(1)
    manifest["metadata"]["namespace"] = "rival"
    answer = await ask(app, manifest)
    assert answer.status_code == 400
    assert answer.json()["error"]["field"] == "namespace"


async def test_rights_that_cannot_be_reviewed_are_answered_503(app: Any) -> None:
    answer = await ask(app, pod(1), token="unreachable")
    assert answer.status_code == 503
    assert "cannot be reviewed" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "message", "field"),
    [
        ("", "the manifest is empty: give one object", "body"),
        ("kind: Pod\nspec: [", "line 2, column 8", "body"),
        ("a: &x 1\nb: *x\n", "line 2: write *x out", "body"),
        (yaml.safe_dump_all([pod(1), pod(2)]), "holds 2 documents", "body"),
        (b"\xff\xfe\x00", "the manifest is neither JSON nor YAML", "body"),
        ("kind: Pod\napiVersion: v1\nspec: 7\n", "got `int`", "$.spec"),
        ("kind: Secret\napiVersion: v1\n", "cannot be explained", "$.kind"),
    ],
)
async def test_a_refusal_names_the_line_or_the_field(
    app: Any, body: str | bytes, message: str, field: str
) -> None:
    answer = await ask(app, body)
    assert answer.status_code == 400, answer.text
    assert message in answer.json()["error"]["message"]
    assert answer.json()["error"]["field"] == field


async def test_an_invalid_request_for_cards_is_refused_with_its_field(app: Any) -> None:
    manifest = pod(1)
    manifest["spec"]["containers"][0]["resources"]["limits"][MEMORY] = "16Gi"
    answer = await ask(app, manifest)
    assert answer.status_code == 400
    assert "write 16384 for 16Gi" in answer.json()["error"]["message"]
    error = answer.json()["error"]
    assert error["field"] == f"spec.containers[0].resources[{MEMORY}]"
    assert yaml.safe_dump(manifest).splitlines()[error["line"] - 1].strip() == "resources:"


async def test_a_moment_of_the_past_is_refused_with_the_remedy(app: Any) -> None:
    answer = await ask(app, pod(1), query="?namespace=team&at=1")
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert "gpuledger fit --at" in error["message"]
    assert (error["parameter"], error["value"]) == ("at", "1"), "as in the other answers of /v1"


async def test_a_manifest_beyond_the_bound_is_refused(app: Any) -> None:
    answer = await ask(app, "#" * (live_fit.MANIFEST_BYTES_MAX + 1))
    assert answer.status_code == 413


@pytest.mark.parametrize(("of_one", "most"), [(2, 9), (9, 2)])
async def test_fits_beyond_the_bounds_are_refused_at_once(
    app: Any, follower: Follower, monkeypatch: pytest.MonkeyPatch, of_one: int, most: int
) -> None:
    """The bound is that of one namespace, or that of all together."""
    monkeypatch.setattr(live_fit, "FITS_OF_ONE_MAX", of_one)
    monkeypatch.setattr(live_fit, "FITS_MAX", most)
    follower.gate.clear()
    waiting = [asyncio.create_task(ask(app, pod(5_000))) for _ in range(3)]
    done, pending = await asyncio.wait(waiting, timeout=5.0, return_when=asyncio.FIRST_COMPLETED)
    (refused,) = done
    assert refused.result().status_code == 503
    assert refused.result().headers["retry-after"] == "1"
    follower.gate.set()
    assert [answer.status_code for answer in await asyncio.gather(*pending)] == [200, 200]


async def test_a_trial_is_ended_at_its_deadline(follower: Follower) -> None:
    devices = PodDeviceRequest((ContainerDeviceRequests("main", Phase.APP, (ONE_CARD,)),))
    for seconds, problem in ((30.0, ""), (0.0, "trying the cards took longer than 0.0 s")):
        question = CardQuestion(1, [PodCardRequest("job", devices)], "", 1, 0, seconds)
        assert (await follower.cards.answer(question)).problem == problem


async def test_a_position_that_the_follower_has_not_read_is_waited_for(
    follower: Follower,
) -> None:
    question = CardQuestion(1, [], "", 1, 1, 0.1)
    behind = await follower.cards.answer(question)
    assert "has read position 0 of 1" in behind.problem
    asked = asyncio.create_task(follower.cards.answer(structs.replace(question, seconds=30.0)))
    await asyncio.sleep(0.05)
    assert not asked.done()
    follower.folded.state.position = 1
    assert (await asked).problem == ""


async def test_large_yaml_is_refused_and_json_of_that_size_is_not(app: Any) -> None:
    manifest = pod(5_000)
    manifest["metadata"]["annotations"] = {"note": "x" * live_fit.YAML_BYTES_MAX}
    refused = await ask(app, manifest)
    assert refused.status_code == 400
    assert "or send JSON" in refused.json()["error"]["message"]
    assert (await ask(app, json.dumps(manifest))).status_code == 200


async def test_a_defect_of_the_trial_is_answered_and_the_next_fit_works(
    app: Any, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(CardAnswers, "_tried", lambda *_: 1 // 0)
        answer = await ask(app, pod(8_000))
    assert "ZeroDivisionError" in answer.json()["error"]["message"]
    assert (await ask(app, pod(8_000))).status_code == 200


@pytest.mark.parametrize("token", ["admin", "tenant"])
async def test_a_report_counts_the_cards_in_slices(app: Any, slices: Slices, token: str) -> None:
    """Cards without an announcement are not counted, nor any before the slices are listed."""
    slices.offered.set("gpu-node-1", {"GPU-a": NVIDIA, "GPU-z": NVIDIA})
    slices.offered.set("gpu-node-9", {"GPU-b": NVIDIA})
    reports = []
    for slices.is_listed in (False, True):
        reports.append((await ask(app, pod(5_000), token=token)).json())
    assert [report["offered_by_dra"] for report in reports] == [None, 1]
    assert [report["pods"][0]["fitting"] for report in reports] == [1, 1]


async def test_without_a_follower_the_remedy_is_named(app: Any) -> None:
    follower = Follower()
    with pytest.raises(FollowerUnavailable, match="try again"):
        await follower.ask([], within="", nodes_max=1, offers=None, position=0, seconds=1.0)


async def test_cards_of_slices_are_left_out_by_the_follower(follower: Follower) -> None:
    """The follower has the slices of each question, also of those that ended since."""
    requests = [PodCardRequest("p", PodDeviceRequest((_ONE_CARD,)))]
    offered = OfferedCards()
    offers = UnsentOffers(offered)

    async def tried() -> PodFit:
        answer = await follower.ask(
            requests, within="", nodes_max=9, offers=offers, position=0, seconds=5.0
        )
        return answer.pods[0]

    assert (await tried()).fitting == 2
    offered.set("gpu-node-1", {"GPU-a": NVIDIA})
    assert [node.node for node in (await tried()).nodes if node.fits] == ["gpu-node-2"]
    offered.set("", {"GPU-b": NVIDIA})
    (counted,) = (await tried()).reasons
    assert (counted.reason, counted.nodes) == ("1/1 CardOfferedByDRA", 2)
    offered.set("gpu-node-1", {})
    offered.set("", {})
    assert (await tried()).fitting == 2


_ONE_CARD = ContainerDeviceRequests(
    "main", Phase.APP, (DeviceRequest("nvidia", 1, 1_000, 0, 0, exclusive=False),)
)
