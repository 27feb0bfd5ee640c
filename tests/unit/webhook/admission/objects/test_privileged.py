"""A privileged container sees every card of its node, so it may not run beside who asks for one."""

from copy import deepcopy
from typing import Any

import pytest
from support.builders.admission_reviews import GPU, MEMORY, CoreLedger, pod, review, serving
from support.fakes.owner_cluster import around

from webhook.context.admission_settings import AdmissionSettings
from webhook.context.namespace_policies import NamespacePolicy

CARD = {GPU: "1", MEMORY: "8k"}
PRIVILEGED = {"privileged": True}
KINDS = ("containers", "initContainers", "ephemeralContainers")

Pod = dict[str, Any]


def asking(limits: dict[str, str] | None = None, **more: Any) -> Pod:
    """Return a pod whose container `main` asks for a card; `more` is in that container."""
    new_pod = pod(CARD if limits is None else limits)
    new_pod["spec"]["containers"][0].update(more)
    return new_pod


def beside(
    original: Pod, kind: str, name: str = "shell", *, at: int | None = None, **more: Any
) -> Pod:
    """Return a pod with another container of a kind, privileged by default."""
    made = deepcopy(original)
    container = {"name": name, "image": "i", "securityContext": PRIVILEGED, **more}
    listed = made["spec"].setdefault(kind, [])
    listed.insert(len(listed) if at is None else at, container)
    return made


async def answered(request: dict[str, Any], ledger: CoreLedger | None = None, **more: Any) -> Any:
    async with serving(ledger or CoreLedger(), **more) as service:
        return await service.post(request)


def update(new: Pod, old: Pod, subresource: str = "") -> dict[str, Any]:
    """Return the review of an update."""
    for version, manifest in ((1, old), (2, new)):
        manifest["metadata"]["resourceVersion"] = str(version)
    return review(new, old, operation="UPDATE", subResource=subresource)


def is_refused(response: Any, field: str) -> None:
    assert not response["allowed"]
    [cause] = response["status"]["details"]["causes"]
    assert (cause["reason"], cause["field"]) == (
        "PrivilegedContainer",
        f"spec.{field}.securityContext.privileged",
    )


@pytest.mark.parametrize(
    ("thing", "field"),
    [
        (asking(securityContext=PRIVILEGED), "containers[0]"),
        (beside(asking(), "containers"), "containers[1]"),
        (beside(asking(), "initContainers"), "initContainers[0]"),
        (beside(asking(), "initContainers", restartPolicy="Always"), "initContainers[0]"),
        (beside(asking(), "ephemeralContainers"), "ephemeralContainers[0]"),
    ],
    ids=["itself", "app", "init", "sidecar", "ephemeral"],
)
async def test_no_container_of_a_new_pod_that_asks_for_cards_is_privileged(
    thing: Pod, field: str
) -> None:
    ledger = CoreLedger()
    response = await answered(review(thing), ledger)
    is_refused(response, field)
    assert "container main" in response["status"]["message"]
    assert ledger.submitted == []
    allowing = AdmissionSettings(allow_privileged=True)
    assert (await answered(review(thing), policy=allowing))["allowed"]


async def test_cards_of_an_init_container_count_as_those_of_any_other() -> None:
    thing = asking({}, securityContext=PRIVILEGED)
    thing["spec"]["initContainers"] = [
        {"name": "first", "image": "i", "resources": {"limits": CARD}}
    ]
    is_refused(await answered(review(thing)), "containers[0]")


@pytest.mark.parametrize("limits", [{}, {"cpu": "1"}, {GPU: "0"}])
async def test_privileged_pods_that_take_no_card_are_let_in(limits: dict[str, str]) -> None:
    thing = asking(limits, securityContext=PRIVILEGED)
    assert (await answered(review(thing)))["allowed"]


@pytest.mark.parametrize("context", [None, {}, {"privileged": None}, {"privileged": False}])
async def test_containers_that_are_not_privileged_are_let_in(context: Any) -> None:
    thing = beside(asking(), "containers", securityContext=context)
    assert (await answered(review(thing)))["allowed"]


async def test_a_privileged_pod_that_exists_can_still_be_labelled() -> None:
    old = beside(asking(), "initContainers")
    new = deepcopy(old)
    new["metadata"]["labels"] = {"a": "b"}
    assert (await answered(update(new, old)))["allowed"]


# An API server changes no container's security context and adds no container by these requests;
# they are judged all the same.


@pytest.mark.parametrize("subresource", ["", "resize", "ephemeralcontainers"])
@pytest.mark.parametrize("kind", KINDS)
async def test_no_update_adds_a_privileged_container(kind: str, subresource: str) -> None:
    response = await answered(update(beside(asking(), kind), asking(), subresource))
    is_refused(response, f"{kind}[{1 if kind == 'containers' else 0}]")


@pytest.mark.parametrize("subresource", ["", "resize"])
async def test_no_privileged_pod_comes_to_ask_for_cards(subresource: str) -> None:
    old, new = (asking(limits, securityContext=PRIVILEGED) for limits in ({GPU: "0"}, CARD))
    is_refused(await answered(update(new, old, subresource)), "containers[0]")


async def test_no_container_becomes_privileged() -> None:
    plain = beside(asking(), "containers", securityContext={})
    is_refused(await answered(update(beside(asking(), "containers"), plain)), "containers[1]")


@pytest.mark.parametrize("at", [0, 1])
async def test_an_older_privileged_debugging_container_lets_no_other_in(at: int) -> None:
    old = beside(asking(), "ephemeralContainers", "older")
    new = beside(old, "ephemeralContainers", "newer", at=at)
    is_refused(
        await answered(update(new, old, "ephemeralcontainers")), f"ephemeralContainers[{at}]"
    )


async def test_unprivileged_debugging_container_is_added_beside_another() -> None:
    ledger = CoreLedger()
    old = beside(asking(), "ephemeralContainers", "older")
    new = beside(old, "ephemeralContainers", "newer", at=0, securityContext={})
    response = await answered(update(new, old, "ephemeralcontainers"), ledger)
    assert response == {"uid": "call-1", "allowed": True}
    assert ledger.submitted == []


async def test_privileged_debugging_container_is_added_when_the_pod_has_no_cards() -> None:
    old = asking({})
    new = beside(old, "ephemeralContainers")
    assert (await answered(update(new, old, "ephemeralcontainers")))["allowed"]


@pytest.mark.parametrize("mode", ["warn", "off"])
@pytest.mark.parametrize("added", [False, True], ids=["created", "debugged"])
async def test_where_nothing_is_refused_a_privileged_container_is_let_in(
    mode: Any, added: bool
) -> None:
    ledger, thing = CoreLedger(), beside(asking(), "ephemeralContainers")
    request = update(thing, asking(), "ephemeralcontainers") if added else review(thing)
    where = around(ledger, default=NamespacePolicy(mode=mode))
    response = await answered(request, ledger, context=where)
    assert response["allowed"]
    assert any("PrivilegedContainer" in warning for warning in response.get("warnings", ())) == (
        mode == "warn"
    )
