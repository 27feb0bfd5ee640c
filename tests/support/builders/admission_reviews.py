"""Admission reviews that tests post to the webhooks, and ledgers that answer them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import httpx2
import msgspec
from support.builders.cluster_contexts import unknown_context

from ledger.core.decide.decider import decide
from ledger.core.evolve.evolver import evolve
from ledger.core.model import accounts
from ledger.core.model.commands import AnyCommand, SetLimits
from ledger.core.model.denials import Denial
from ledger.core.model.state import State
from ledger.core.model.traits import Selection
from ledger.kube.requests.demand_rules import DemandRules
from ledger.log.ledger_port import Accepted, Ledger
from webhook.admission.mutating_webhook import MutatingWebhook
from webhook.admission.validating_webhook import ValidatingWebhook
from webhook.app import application
from webhook.context.admission_settings import AdmissionSettings
from webhook.context.cluster_context import ClusterContext

CLUSTER = "east"
NAMESPACE = "east/team"
GPU, MEMORY, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"
FIXTURES = Path(__file__).parents[2] / "fixtures" / "admission"


class CoreLedger:
    """Decides by the real core, keeps its state in memory and remembers what was submitted."""

    def __init__(self) -> None:
        self.state = State()
        self.submitted: list[tuple[AnyCommand, bool]] = []
        self.answer: Denial | None = None

    def limit(self, *, selects: Selection = (), **limits: int) -> None:
        """Limit cards, memory or cores of the namespace, or of what is selected, in one quota."""
        names = {"cards": GPU, "memory": MEMORY, "cores": CORES}
        keys = {f"limits.{names[name]}": limit for name, limit in limits.items()}
        self.limit_keys(keys, selects=selects)

    def limit_keys(self, keys: dict[str, int], *, selects: Selection = ()) -> None:
        """Limit the namespace, or what is selected in it, by limit key, in one quota."""
        account = accounts.quota(CLUSTER, "team", "gpu")
        self.apply(SetLimits(account, (NAMESPACE,), keys, selects=selects))

    def used(self) -> dict[str, int]:
        """Return the charged amounts, by limit key."""
        state = self.state
        return {key: state.used[line] for line, (_, key) in enumerate(state.names)}

    def commands(self) -> list[AnyCommand]:
        """Return the submitted commands, without dry runs."""
        return [command for command, dry_run in self.submitted if not dry_run]

    async def submit(self, command: AnyCommand, *, dry_run: bool = False) -> Accepted | Denial:
        self.submitted.append((command, dry_run))
        if self.answer is not None:
            return self.answer
        decision = decide(self.state, command)
        if isinstance(decision, Denial):
            return msgspec.structs.replace(decision, decision="d-1")
        if not dry_run:
            self._apply(decision)
        return Accepted(self.state.position, "d-1", bool(decision))

    def apply(self, command: AnyCommand) -> None:
        """Have a command decided that is not submitted."""
        decision = decide(self.state, command)
        assert not isinstance(decision, Denial)
        self._apply(decision)

    def _apply(self, decided: list[Any]) -> None:
        for event in decided:
            evolve(self.state, event, 1)


class SilentLedger:
    """Never answers."""

    async def submit(self, command: AnyCommand, *, dry_run: bool = False) -> Accepted | Denial:
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")


class WebhookService:
    """Both webhooks over HTTP, without a socket."""

    def __init__(
        self, client: httpx2.AsyncClient, ledger: Ledger, validating: ValidatingWebhook
    ) -> None:
        self.client = client
        self.ledger = ledger
        self.validating = validating

    async def post(self, review: dict[str, Any], webhook: str = "validate") -> dict[str, Any]:
        """Post a review and return the response part of the answer."""
        answer = await self.client.post(f"/admission/{webhook}", json=review)
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        assert body["apiVersion"] == "admission.k8s.io/v1"
        assert body["kind"] == "AdmissionReview"
        response: dict[str, Any] = body["response"]
        assert response["uid"] == review["request"]["uid"]
        return response


@asynccontextmanager
async def serving(
    ledger: Ledger,
    *,
    rules: DemandRules | None = None,
    policy: AdmissionSettings | None = None,
    context: ClusterContext | None = None,
) -> AsyncIterator[WebhookService]:
    """Serve both webhooks on a ledger."""
    rules, policy = rules or DemandRules(), policy or AdmissionSettings()
    context = context or unknown_context(CLUSTER, rules)
    mutating = MutatingWebhook(policy, context)
    validating = ValidatingWebhook(ledger, settings=policy, context=context)
    transport = httpx2.ASGITransport(app=application(mutating, validating, policy))
    async with httpx2.AsyncClient(transport=transport, base_url="https://webhook") as client:
        yield WebhookService(client, ledger, validating)


def pod(limits: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    """Return a pod with one container, as it would be persisted."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "team", "uid": "u-1", **metadata},
        "spec": {"containers": [{"name": "main", "resources": {"limits": limits or {}}}]},
        "status": {},
    }


def review(
    new: dict[str, Any] | None,
    old: dict[str, Any] | None = None,
    *,
    operation: str = "CREATE",
    username: str = "ada",
    **request: Any,
) -> dict[str, Any]:
    """Return the review of a pod."""
    meta = (new or old or {}).get("metadata", {})
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "call-1",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "operation": operation,
            "name": meta.get("name", ""),
            "namespace": meta.get("namespace", ""),
            "userInfo": {"username": username},
            "object": new,
            "oldObject": old,
            "dryRun": False,
            **request,
        },
    }


def update(new: dict[str, Any], old: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return the review of an update on version 5."""
    old["metadata"]["resourceVersion"] = "5"
    return review(new, old, operation="UPDATE", **more)


async def answered(request: dict[str, Any], ledger: Any = None, **more: Any) -> dict[str, Any]:
    """Return the response to one review."""
    async with serving(ledger or CoreLedger(), **more) as service:
        return await service.post(request)


def causes(response: dict[str, Any]) -> list[tuple[str, str]]:
    """Return reason and field of every cause of a denial."""
    assert not response["allowed"]
    assert (response["status"]["code"], response["status"]["reason"]) == (403, "Forbidden")
    return [(cause["reason"], cause["field"]) for cause in response["status"]["details"]["causes"]]


def recorded(case: str, webhook: str | None = None) -> list[tuple[str, dict[str, Any]]]:
    """Return the reviews of a recorded case, in order, as `(webhook, review)`."""
    calls = msgspec.json.decode((FIXTURES / f"{case}.json").read_bytes())["calls"]
    pairs = [(call["webhook"], call["review"]) for call in calls if "review" in call]
    return [pair for pair in pairs if webhook in (None, pair[0])]


def patched(thing: dict[str, Any], patch: list[dict[str, Any]]) -> dict[str, Any]:
    """Apply a JSON patch of `add` operations, as the API server does."""
    result = deepcopy(thing)
    for step in patch:
        assert step["op"] == "add"
        *way, last = [
            part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:]
        ]
        target: Any = result
        for part in way:
            target = target[int(part)] if isinstance(target, list) else target[part]
        target[last] = step["value"]
    return result
