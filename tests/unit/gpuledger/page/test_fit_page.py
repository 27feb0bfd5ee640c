"""Would it fit?: the form, its answer, its errors, and what a tenant sees."""

import asyncio
import re
from pathlib import Path
from urllib.parse import urlencode

import httpx2
import pytest
from support.builders.decide_and_fold import record
from support.harness.projection_harness import SECOND, START, log_of, project
from support.pages.page_harness import FakeSource, Tenant, pages

from extender.analysis.fit_report_cards import CardVerdict
from extender.analysis.fit_suggestions import FitSuggestion
from gpuledger.manifest_fit.fit_report import DecidedFit, FitReport, NodeFit, PodFit, ReasonCount
from gpuledger.page.page_errors import ManifestError
from gpuledger.page.page_source import ManifestQuestion
from gpuledger.page.views import fit_page
from ledger.core.model import commands
from ledger.core.model.cards import OWN, Card
from ledger.core.model.denials import Denial, Reason, Shortage
from ledger.core.model.state import State
from webhook.admission.explanation import Explanation

EVIL = "<script>alert(1)</script>\u202e"
MEMORY = "nvidia.com/gpumem"
SHORT = Shortage(
    f"quota/c1/red/{EVIL}", f"limits.{MEMORY}", 8_000, 8_000, 8_000, 0, 8_000, 8_000, 0
)


class Fits(FakeSource):
    """Answers with a report about one node and one card of hostile names."""

    def __init__(self, cluster: str = "c1") -> None:
        super().__init__()
        self.cluster = cluster
        self.asked: list[ManifestQuestion] = []
        self.error: Exception | None = None
        self.pods: list[PodFit] = []
        self.offered: int | None = 0

    async def fit(self, question: ManifestQuestion) -> DecidedFit:
        self.asked.append(question)
        if self.error is not None:
            raise self.error
        denial = Denial(Reason.QUOTA_EXCEEDED, "no room", transient=True, shortages=(SHORT,))
        decision = Explanation(False, f"no room {EVIL}", "c1/red", "pods/p", {}, denial, ())
        card = CardVerdict(0, EVIL, EVIL, 1_000, 50, 3, "CardInsufficientMemory", 2_048, False)
        nodes = [NodeFit(f"{EVIL}{n}", False, 0, EVIL, [], [card], []) for n in range(25)]
        change = FitSuggestion("evict", 0, 0, [EVIL], f"evict {EVIL} from {EVIL}")
        pod = PodFit(EVIL, False, nodes, [change], 0, 40, [ReasonCount(EVIL, 40)], (EVIL,))
        pods = self.pods or [pod]
        return DecidedFit(
            decision,
            FitReport(
                3,
                "red",
                False,
                False,
                decision.answer,
                pods,
                question.restricted,
                self.offered,
            ),
        )


@pytest.fixture(scope="module")
def projection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "ledger.sqlite"
    asyncio.run(project(path, log_of([])))
    return path


async def post(
    client: httpx2.AsyncClient,
    manifest: str,
    *,
    namespace: str = "red",
    user: str = "",
    token: str | None = None,
    **more: str,
) -> httpx2.Response:
    """Send the form with the token that the page gave."""
    if token is None:
        text = (await client.get("/page/fit")).text
        token = re.findall(r'name="form_token" value="([^"]+)"', text)[0]
    fields = {"form_token": token, "namespace": namespace, "user": user, "manifest": manifest}
    fields |= more
    headers = {"content-type": "application/x-www-form-urlencoded", "origin": "http://ledger"}
    return await client.post("/page/fit", content=urlencode(fields), headers=headers)


async def test_the_answer_names_nodes_cards_reasons_and_remedies(projection: Path) -> None:
    source = Fits()
    async with pages(projection, source=source) as client:
        answer = await post(client, "kind: Pod")
    assert answer.status_code == 200, answer.text
    (asked,) = source.asked
    assert (asked.namespace, asked.at, asked.restricted) == ("red", "", False)
    assert not asked.own_holders
    for shown in ("Changes that would help", "CardInsufficientMemory", "2 GiB missing", "20 more"):
        assert shown in answer.text
    assert "quota/c1/red" not in answer.text, "the name of the account is internal"
    assert answer.text.count("<textarea") == 1
    assert "kind: Pod</textarea>" in answer.text


@pytest.mark.parametrize(
    ("fitting", "total", "answer"),
    [
        (0, 40, "It fits on no node."),
        (1, 40, "Devices of resource claims are not tried."),
        (0, 0, "Devices of resource claims are not tried."),
    ],
)
async def test_only_undecided_claims_keep_the_answer_open(
    projection: Path, fitting: int, total: int, answer: str
) -> None:
    source = Fits()
    source.pods = [PodFit("p", False, [], [], fitting, total, [], ("small",))]
    async with pages(projection, source=source) as client:
        text = (await post(client, "kind: Pod")).text
    assert re.findall(r"<dt>Cards</dt><dd><span[^>]*>([^<]*)", text) == [answer]


@pytest.mark.parametrize(
    ("offered", "said"),
    [(None, "a service of the cluster that lists them can."), (0, ""), (3, "3 cards are left out")],
)
async def test_cards_in_slices_are_counted_below_the_nodes(
    projection: Path, offered: int | None, said: str
) -> None:
    source = Fits()
    source.offered = offered
    async with pages(projection, source=source) as client:
        text = (await post(client, "kind: Pod")).text
    assert said in text
    assert ("fit-left-out" in text) == bool(said)


async def test_quotas_and_cards_are_those_of_the_user_in_the_form(projection: Path) -> None:
    source = Fits()
    async with pages(projection, source=source) as client:
        await post(client, "kind: Pod", user="alice")
    assert [asked.user for asked in source.asked] == ["alice"], "one question has both answers"


async def test_hostile_names_and_manifests_are_text(projection: Path) -> None:
    async with pages(projection, source=Fits()) as client:
        answer = await post(client, f"</textarea>{EVIL}")
    assert "<script>" not in answer.text
    assert answer.text.count("</textarea>") == 1
    # Only the manifest itself, which the browser sends again, is as it was.
    assert answer.text.count("\u202e") == 1


async def test_a_tenant_asks_for_its_own_namespace_only(projection: Path) -> None:
    source, tenant = Fits(), Tenant("red")
    async with pages(projection, source=source, viewer=tenant) as client:
        own = await post(client, "kind: Pod")
        others = [await post(client, "kind: Pod", namespace=name) for name in ("", "blue")]
    assert own.status_code == 200
    assert "Nodes and cards are not named" in own.text
    assert [answer.status_code for answer in others] == [403, 403]
    (asked,) = source.asked
    assert (asked.namespace, asked.restricted, asked.own_holders) == ("red", True, True)
    assert ("create", "fit", "red") in tenant.asked


def cards_of(*clusters: str) -> list[bytes]:
    """Return a log in which each cluster has a node with a card."""
    state, payloads = State(), list[bytes]()
    for number, name in enumerate(clusters):
        card = Card(f"GPU-{name}", 0, "A100", 40_960, 100, 10)
        step = commands.RegisterCards(f"{name}/node", OWN, (card,), "agent", 1)
        payload = record(state, [step], time=START + number * SECOND)
        assert payload is not None
        payloads.append(payload)
    return payloads


@pytest.mark.parametrize(
    ("own", "wanted", "asked"),
    [("", "c2", "c2"), ("", "", "c1"), ("", "absent", "c1"), ("c3", "c2", "c3")],
)
async def test_the_answer_names_the_chosen_cluster(
    tmp_path: Path, own: str, wanted: str, asked: str
) -> None:
    await project(tmp_path / "ledger.sqlite", log_of(cards_of("c1", "c2")))
    source = Fits(cluster=own)
    async with pages(tmp_path / "ledger.sqlite", source=source) as client:
        form = (await client.get("/page/fit")).text
        answer = await post(client, "kind: Pod", cluster=wanted)
    assert ('name="cluster"' in form) == (not own)
    assert [question.cluster for question in source.asked] == [asked]
    assert f'of cluster <bdi class="name">{asked}</bdi>' in answer.text


async def test_the_only_cluster_with_cards_is_used_without_a_choice(tmp_path: Path) -> None:
    await project(tmp_path / "ledger.sqlite", log_of(cards_of("far")))
    source = Fits(cluster="")
    async with pages(tmp_path / "ledger.sqlite", source=source) as client:
        assert 'name="cluster"' not in (await client.get("/page/fit")).text
        await post(client, "kind: Pod")
    assert [question.cluster for question in source.asked] == ["far"]


@pytest.mark.parametrize("token", ["", "forged"])
async def test_a_form_without_its_token_is_refused(projection: Path, token: str) -> None:
    source = Fits()
    async with pages(projection, source=source) as client:
        assert (await post(client, "kind: Pod", token=token)).status_code == 403
    assert source.asked == []


async def test_an_error_names_line_and_field_and_keeps_the_manifest(projection: Path) -> None:
    source = Fits()
    source.error = ManifestError("Expected `object`, got `int`", "$.spec")
    async with pages(projection, source=source) as client:
        answer = await post(client, "kind: Pod\napiVersion: v1\nspec: 7\n")
    assert answer.status_code == 200
    assert "Line 3: $.spec: Expected `object`, got `int`" in answer.text
    assert "spec: 7\n</textarea>" in answer.text


@pytest.mark.parametrize(
    ("manifest", "message"),
    [("  \n", "The manifest is empty."), ("x" * 200, "The manifest has 200 bytes")],
)
async def test_a_manifest_outside_the_bounds_is_refused(
    projection: Path, manifest: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fit_page, "MANIFEST_BYTES_MAX", 100)
    source = Fits()
    async with pages(projection, source=source) as client:
        assert message in (await post(client, manifest)).text
    assert source.asked == []


async def test_a_namespace_longer_than_any_is_refused(projection: Path) -> None:
    source = Fits()
    async with pages(projection, source=source) as client:
        assert (await post(client, "kind: Pod", namespace="n" * 64)).status_code == 400
    assert source.asked == []


async def test_a_source_that_is_not_available_is_a_message_beside_the_form(
    projection: Path,
) -> None:
    async with pages(projection) as client:
        answer = await post(client, "kind: Pod")
    assert answer.status_code == 200
    assert "no ledger" in answer.text
    assert "kind: Pod</textarea>" in answer.text
