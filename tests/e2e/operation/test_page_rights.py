"""The pages for a user of a real API server: signed in by token, with the rights of a role."""

import ssl
from collections.abc import AsyncIterator

import httpx2
import pytest

from gpuledger.page.access.session_cookie import NAME
from tests.e2e.harness.polling import eventually
from tests.e2e.harness.service import Service
from tests.e2e.objects.pods import CARDS
from tests.e2e.objects.team import Team

pytestmark = pytest.mark.e2e

HOST = "gpuledger.example"
"""Not a name of loopback, so the service asks for rights."""

RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces"


@pytest.fixture
async def browser(service: Service) -> AsyncIterator[httpx2.AsyncClient]:
    """A client that keeps cookies, as one on another machine."""
    context = ssl.create_default_context(cafile=str(service.authority))
    base = f"https://{service.address}"
    async with httpx2.AsyncClient(
        base_url=base, verify=context, headers={"host": HOST}, timeout=20.0
    ) as client:
        yield client


async def token_of(team: Team, account: str) -> str:
    """Create a service account, and return a token of it."""
    accounts = f"{team.path}/serviceaccounts"
    await team.cluster.must("POST", accounts, {"metadata": {"name": account}})
    answer = await team.cluster.must("POST", f"{accounts}/{account}/token", {"spec": {}})
    return str(answer["status"]["token"])


async def allow(team: Team, account: str) -> None:
    """Let an account read the usage of its namespace."""
    rule = {"apiGroups": ["gpuledger.io"], "resources": ["usage"], "verbs": ["list"]}
    role = {"metadata": {"name": "reader"}, "rules": [rule]}
    await team.cluster.must("POST", f"{RBAC}/{team.namespace}/roles", role)
    subject = {"kind": "ServiceAccount", "name": account, "namespace": team.namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}
    binding = {"metadata": {"name": "reader"}, "subjects": [subject], "roleRef": reference}
    await team.cluster.must("POST", f"{RBAC}/{team.namespace}/rolebindings", binding)


async def sign_in(browser: httpx2.AsyncClient, token: str, wanted: str) -> httpx2.Response:
    form = (await browser.get("/page/login")).text
    field = form.partition('name="form_token" value="')[2].partition('"')[0]
    data = {"form_token": field, "token": token, "next": wanted}
    return await browser.post("/page/login", data=data)


async def test_a_tenant_signs_in_and_reads_its_own_namespace(
    team: Team, browser: httpx2.AsyncClient
) -> None:
    await team.limit({f"limits.{CARDS}": "7"})
    token, page = await token_of(team, "alice"), f"/page/?namespace={team.namespace}"
    await allow(team, "alice")
    assert (await browser.get(page)).status_code == 303
    assert (await sign_in(browser, "forged", page)).status_code == 401
    signed = await sign_in(browser, token, page)
    assert (signed.status_code, signed.headers["location"]) == (303, page)
    assert token not in browser.cookies[NAME]

    shown = await eventually(
        lambda: browser.get(page),
        lambda answer: answer.status_code == 200,
        within=20.0,
        what="the role is in effect",
    )
    assert "0 of 7 GPUs" in shown.text
    assert f"system:serviceaccount:{team.namespace}:alice" in shown.text
    whole = await browser.get("/page/")
    assert "You may not read all namespaces." in whole.text
    assert f'value="{team.namespace}"' in whole.text
    other = await browser.get("/page/?namespace=kube-system")
    assert (other.status_code, "usage.gpuledger.io" in other.text) == (403, True)
