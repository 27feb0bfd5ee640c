"""Would it fit?: the form, its answer, its errors, and what a tenant sees."""

import asyncio
import re
from pathlib import Path
from urllib.parse import urlencode

import httpx2
import pytest
from support.harness.projection_harness import log_of, project
from support.pages.page_harness import FakeSource, Tenant, pages

from extender.analysis.fit_report_cards import CardVerdict
from extender.analysis.fit_suggestions import FitSuggestion
from gpuledger.manifest_fit.fit_report import FitReport, NodeFit, PodFit, ReasonCount
from gpuledger.page.page_errors import ManifestError
from gpuledger.page.views import fit_page
from ledger.core.model.denials import Denial, Reason, Shortage
from webhook.admission.explanation import Explanation

EVIL = "<script>alert(1)</script>\u202e"
MEMORY = "nvidia.com/gpumem"
SHORT = Shortage(
    f"quota/c1/red/{EVIL}", f"limits.{MEMORY}", 8_000, 8_000, 8_000, 0, 8_000, 8_000, 0
)


class Fits(FakeSource):
    """Answers with a report about one node and one card of hostile names."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, str, bool]] = []
        self.own_holders: list[bool] = []
        self.users: list[str] = []
        self.error: Exception | None = None

    async def explain(
        self, manifest: bytes, namespace: str, user: str, *, own_holders: bool
    ) -> Explanation:
        self.own_holders.append(own_holders)
        self.users.append(user)
        if self.error is not None:
            raise self.error
        denial = Denial(Reason.QUOTA_EXCEEDED, "no room", transient=True, shortages=(SHORT,))
        return Explanation(False, "no room", "c1/red", "pods/p", {}, denial, ())

    async def fit(
        self,
        manifest: bytes,
        namespace: str,
        user: str,
        *,
        at: str,
        restricted: bool,
        own_holders: bool,
    ) -> FitReport:
        self.own_holders.append(own_holders)
        self.users.append(user)
        self.asked.append((namespace, at, restricted))
        card = CardVerdict(0, EVIL, EVIL, 1_000, 50, 3, "CardInsufficientMemory", 2_048, False)
        nodes = [NodeFit(f"{EVIL}{n}", False, 0, EVIL, [], [card], []) for n in range(25)]
        change = FitSuggestion("evict", 0, 0, [EVIL], f"evict {EVIL} from {EVIL}")
        pod = PodFit(EVIL, False, nodes, [change], 0, 40, [ReasonCount(EVIL, 40)], (EVIL,))
        return FitReport(3, "red", False, False, f"no room {EVIL}", [pod], restricted)


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
) -> httpx2.Response:
    """Send the form with the token that the page gave."""
    if token is None:
        text = (await client.get("/page/fit")).text
        token = re.findall(r'name="form_token" value="([^"]+)"', text)[0]
    fields = {"form_token": token, "namespace": namespace, "user": user, "manifest": manifest}
    headers = {"content-type": "application/x-www-form-urlencoded", "origin": "http://ledger"}
    return await client.post("/page/fit", content=urlencode(fields), headers=headers)


async def test_the_answer_names_nodes_cards_reasons_and_remedies(projection: Path) -> None:
    source = Fits()
    async with pages(projection, source=source) as client:
        answer = await post(client, "kind: Pod")
    assert answer.status_code == 200, answer.text
    assert source.asked == [("red", "", False)]
    assert source.own_holders == [False, False]
    for shown in ("Changes that would help", "CardInsufficientMemory", "2 GiB missing", "20 more"):
        assert shown in answer.text
    assert answer.text.count("<textarea") == 1
    assert "kind: Pod</textarea>" in answer.text


async def test_quotas_and_cards_are_those_of_the_user_in_the_form(projection: Path) -> None:
    source = Fits()
    async with pages(projection, source=source) as client:
        await post(client, "kind: Pod", user="alice")
    assert source.users == ["alice", "alice"]


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
    assert source.asked == [("red", "", True)]
    assert source.own_holders == [True, True], "neither decision names another namespace"
    assert ("create", "fit", "red") in tenant.asked


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
