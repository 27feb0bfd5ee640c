"""A reader of one namespace gets no name of another one, from `/v1` and the aggregated API."""

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from support.builders.decide_and_fold import apply, record
from support.harness.projection_harness import log_of, project
from support.pages.page_harness import Tenant, pages
from support.pages.two_tenants import GPU, HIDDEN, MEMORY, RED, SECRETS, SHARED, two_tenants

from gpuledger.page.page_source import ManifestQuestion
from gpuledger.server.aggregated.aggregated_api import AggregatedApi
from gpuledger.server.aggregated.aggregated_discovery import ROOT
from gpuledger.server.aggregated.front_proxy_trust import FrontProxyTrust
from gpuledger.server.endpoints.explain_endpoint import ExplainEndpoint
from gpuledger.server.endpoints.fit_endpoint import FitEndpoint
from gpuledger.server.endpoints.live_fit import LiveFit
from gpuledger.server.follower.card_answers import CardAnswer
from gpuledger.server.pages.service_source import ServiceSource
from gpuledger.storage.past_ledger import PastLedger
from gpuledger.wiring import admission_from_settings
from ledger.core.decide.decider import decide
from ledger.core.model import commands
from ledger.core.model.denials import Denial, sentence
from ledger.core.model.state import State
from ledger.core.model.traits import NAME, Reach, Requirement
from ledger.kube.client.access_review import Subject
from ledger.runtime.http.token_reviews import TokenGuard
from ledger.runtime.http.v1_access import AccessRequired
from ledger.runtime.settings.settings import Settings
from projections.api import routes
from projections.store.readers import Readers
from webhook.admission.validating_webhook import ValidatingWebhook
from webhook.gates.waiting_events import Obstacle

REACHED = "universe/reached"
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "big"},
    "spec": {"containers": [{"name": "main", "resources": {"limits": {GPU: "9", MEMORY: "900"}}}]},
}
Ask = Callable[..., Awaitable[httpx2.Response]]


class Reviewer:
    """Grants `red` everything in namespace red, and `admin` everything; the token is the user.

    `cards` may list the cards of all namespaces as well. The rights of `unclear` in all namespaces
    cannot be reviewed.
    """

    async def review(self, token: str) -> Subject | None:
        return Subject(token)

    async def may(self, caller: Subject, verb: str, resource: str, namespace: str) -> bool:
        if caller.username == "unclear" and not namespace:
            raise ConnectionError("no route")
        everywhere = caller.username == "admin" or (caller.username, resource) == ("cards", "cards")
        return everywhere or namespace == "red"


class Proxy(FrontProxyTrust, frozen=True):
    """Accepts every connection as that of the API server."""

    def accepts(self, chain: object) -> bool:
        return True


class Follower:
    """Has no cards."""

    async def ask(self, *_: Any, **__: Any) -> CardAnswer:
        return CardAnswer(1, 1, [])


SETTINGS = Settings(cluster="c1")


def full_quota() -> State:
    """Return a quota that both namespaces share, with little room."""
    state = State()
    demand = {GPU: 6, MEMORY: 600}
    apply(
        state,
        commands.SetLimits(SHARED, (RED, HIDDEN), {f"requests.{GPU}": 8}),
        commands.Reserve(HIDDEN, "pods/hidden-pod", "h", demand),
        commands.Reserve(RED, "pods/own", "o", {GPU: 1}),
    )
    return state


def live_fit() -> tuple[ValidatingWebhook, LiveFit]:
    """Return the webhook and the fit on the full quota."""
    ledger = PastLedger(full_quota())
    validating = ValidatingWebhook(
        ledger,
        settings=admission_from_settings.admission_settings(SETTINGS),
        context=admission_from_settings.cluster_context(SETTINGS, ledger),
    )
    follower: Any = Follower()
    live = LiveFit(validating, SETTINGS, follower=lambda: follower, position=lambda: 1)
    return validating, live


def live_routes() -> list[Any]:
    validating, live = live_fit()
    return [ExplainEndpoint(validating, SETTINGS).route(), FitEndpoint(live, SETTINGS).route()]


@pytest.fixture(scope="module")
def projection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return two_tenants(tmp_path_factory.mktemp("names") / "ledger.sqlite")


@pytest.fixture
async def ask(projection: Path) -> AsyncIterator[Ask]:
    """Return a function that asks as a user, on `/v1` or through the API server."""
    async with Readers(projection) as readers:
        yield asking(readers)


def asking(readers: Readers) -> Ask:
    served, guard = [*routes.routes(readers), *live_routes()], TokenGuard(Reviewer())
    token = AccessRequired(Starlette(routes=served), guard, cluster="c1")
    trust = Proxy(b"", frozenset(), ("x-remote-user",), (), ("x-remote-group",), ())
    proxied = AggregatedApi(served, guard=guard, trust=lambda: trust, cluster="c1")

    async def asked(
        api: str, user: str, resource: str, *, namespace: str = "red", **query: str
    ) -> httpx2.Response:
        app: Any = token if api == "v1" else proxied
        where = f"namespaces/{namespace}/" if namespace else ""
        path = f"/v1/{resource}" if api == "v1" else f"{ROOT}/{where}{resource}"
        given = query | ({"namespace": namespace} if namespace and api == "v1" else {})
        is_local = user == "local"
        peer, host = ("127.0.0.1", "localhost") if is_local else ("203.0.113.9", "ledger")
        headers = {} if is_local else {"authorization": f"Bearer {user}", "x-remote-user": user}
        transport = httpx2.ASGITransport(app, client=(peer, 4711))
        method, body = ("POST", json.dumps(POD)) if resource in ("explain", "fit") else ("GET", "")
        async with httpx2.AsyncClient(transport=transport, base_url=f"https://{host}") as client:
            return await client.request(method, path, params=given, headers=headers, content=body)

    return asked


def secrets(answer: httpx2.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [secret for secret in SECRETS if secret in answer.text]


QUESTIONS: tuple[tuple[str, dict[str, str]], ...] = (
    ("usage", {}),
    ("usage", {"by": "namespace"}),
    ("usage", {"by": "cluster"}),
    ("usage", {"by": "namespace", "quota": "all"}),
    ("usage", {"limits": "true"}),
    ("holders", {"pods": "true"}),
    ("holds", {}),
    ("events", {}),
    ("denials", {}),
    ("drift", {}),
    ("drift", {"by": "user"}),
    ("explain", {}),
    ("fit", {}),
)


@pytest.mark.parametrize("api", ["v1", "aggregated"])
async def test_a_reader_of_one_namespace_gets_no_other_names(ask: Ask, api: str) -> None:
    for resource, query in QUESTIONS:
        answer = await ask(api, "red", resource, **query)
        assert secrets(answer) == [], (resource, query, answer.text)


@pytest.mark.parametrize(("api", "user"), [("v1", "admin"), ("v1", "local"), ("aggr", "admin")])
@pytest.mark.parametrize("resource", ["explain", "fit", "denials"])
async def test_a_reader_of_all_namespaces_gets_the_holders(
    ask: Ask, api: str, user: str, resource: str
) -> None:
    assert secrets(await ask(api, user, resource)) == ["hidden-tenant"]


@pytest.mark.parametrize("resource", ["explain", "fit"])
async def test_a_decision_names_own_holders_and_the_numbers(ask: Ask, resource: str) -> None:
    text = (await ask("v1", "red", resource)).json()["answer"]
    assert "7 are used" in text
    assert "Used by: pods/own 1. [" in text


async def test_a_right_to_cards_of_all_namespaces_is_none_to_holders(ask: Ask) -> None:
    answer = await ask("v1", "cards", "fit")
    assert not answer.json()["restricted"]
    assert secrets(answer) == []


async def test_a_stored_denial_has_the_others_as_one_sum(ask: Ask) -> None:
    (past,) = (await ask("v1", "red", "denials")).json()
    (others,) = (held for held in past["denial"]["holders"] if not held["since"])
    assert others == {"key": "other namespaces together", "amount": 8, "since": 0}
    assert "other namespaces together 8" in past["message"]
    (named,) = (await ask("v1", "admin", "denials")).json()
    (foreign,) = (held for held in named["denial"]["holders"] if not held["since"])
    assert foreign == {"key": HIDDEN, "amount": 8, "since": 0}


@pytest.mark.parametrize(("viewer", "seen"), [("red", []), ("", ["hidden-tenant"])])
async def test_the_page_of_a_service_decides_for_its_viewer(
    projection: Path, viewer: str, seen: list[str]
) -> None:
    live: Any = SimpleNamespace(fit=live_fit()[1])
    replica: Any = None
    source: Any = ServiceSource(SETTINGS, replica=replica, live=live)
    async with pages(projection, viewer=Tenant(viewer), source=source) as client:
        form = (await client.get("/page/fit")).text
        (token,) = re.findall(r'name="form_token" value="([^"]+)"', form)
        fields = {"form_token": token, "namespace": "red", "manifest": json.dumps(POD)}
        headers = {"origin": "http://ledger"}
        answer = await client.post("/page/fit", data=fields, headers=headers)
    assert "7 are used" in answer.text
    assert secrets(answer) == seen
    question = ManifestQuestion(
        manifest=json.dumps(POD).encode(),
        namespace="red",
        user="",
        cluster="",
        at="",
        restricted=False,
        own_holders=not seen,
    )
    assert (HIDDEN in (await source.fit(question)).decision.answer) == bool(seen)


@pytest.mark.parametrize(
    ("resource", "query"),
    [("explain", {}), ("fit", {}), ("denials", {}), ("usage", {"limits": "true"})],
)
async def test_names_are_withheld_while_rights_are_unclear(
    ask: Ask, resource: str, query: dict[str, str]
) -> None:
    answer = await ask("v1", "unclear", resource, **query)
    assert answer.status_code == 503
    assert not [secret for secret in SECRETS if secret in answer.text]


def test_the_obstacle_of_a_waiting_pod_names_no_holders() -> None:
    denial = decide(full_quota(), commands.Reserve(RED, "pods/big", "b", {GPU: 9}))
    assert isinstance(denial, Denial)
    assert HIDDEN in sentence(denial)
    assert HIDDEN not in Obstacle.of(denial).text


async def test_a_quota_over_named_namespaces_does_not_name_them(tmp_path: Path) -> None:
    state, path = State(), tmp_path / "ledger.sqlite"
    reach = Reach(namespaces=(Requirement(NAME, "In", ("hidden-tenant", "red")),))
    step: list[commands.AnyCommand] = [
        commands.Describe(RED, f"{NAME}=red"),
        commands.SetLimits(REACHED, (), {f"requests.{GPU}": 8}, reach=reach),
        commands.SetLimits("universe/all", (), {f"requests.{GPU}": 9}, reach=Reach()),
    ]
    payload = record(state, step)
    assert payload is not None
    await project(path, log_of([payload]))
    async with Readers(path) as readers:
        answers = [
            await asking(readers)("v1", user, "usage", limits="true") for user in ("red", "admin")
        ]
    shown, named = ({row["quota"]: row["covers"] for row in answer.json()} for answer in answers)
    everywhere = "all namespaces of all clusters"
    assert shown == {"all": everywhere, "reached": "selected namespaces"}
    assert named["reached"] == "namespaces with name in (hidden-tenant, red) of all clusters"
