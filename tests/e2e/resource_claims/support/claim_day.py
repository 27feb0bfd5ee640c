"""A random day of pods, Deployments, templates and claims, in batches of concurrent requests."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

from tests.e2e.harness.cluster import Answer, Manifest
from tests.e2e.resource_claims.support.claim_manifests import (
    ON_H100,
    claim,
    deployment_with,
    exactly,
    first_available,
    pod_with,
    template,
)
from tests.e2e.resource_claims.support.claim_supply import H100, NET, SHARED, WHOLE
from tests.e2e.resource_claims.support.claim_team import ClaimTeam

EXPECTED: Final = {200, 201, 403, 404, 409, 500}
"""500 is the answer while the service does not run; 403 a denial; 404 and 409 are races."""

_SIZES: Final = ("1Gi", "1500Mi", "7500Mi", "12Gi", "30Gi", "")
_KINDS: Final = ("Pod", "Deployment", "ResourceClaim", "ResourceClaimTemplate")
Listed = dict[tuple[ClaimTeam, str], list[Manifest]]


class ClaimDay:
    """Acts at random in namespaces; everything follows from the seed and from the cluster."""

    def __init__(self, teams: tuple[ClaimTeam, ...], seed: int) -> None:
        self.done: Counter[str] = Counter()
        """The answers by action and status."""
        self.later: set[str] = set()
        """Templates that pods used before they existed."""
        self._teams = teams
        self._random = random.Random(seed)
        self._number = 0
        self._is_reviewed = True
        self._used: set[str] = set()
        self._doomed: set[str] = set()

    async def batch(self, size: int, *, is_reviewed: bool) -> None:
        """Send some requests at once.

        No list has what was admitted for templates and claims of pods, so those in use are not
        deleted. While no review takes place, only the last namespace is scaled, whose limits are
        not reached.
        """
        self._is_reviewed = is_reviewed
        listed = {(team, kind): await team.listed(kind) for team in self._teams for kind in _KINDS}
        self._used = {
            name for objects in listed.values() for item in objects for name in _templates(item)
        }
        self._used |= {
            item["metadata"]["name"]
            for objects in listed.values()
            for item in objects
            if item["kind"] == "ResourceClaim" and "ownerReferences" in item["metadata"]
        }
        self._doomed = set()
        actions = [self._action(listed) for _ in range(size)]
        answers = await asyncio.gather(*(act() for _, act in actions))
        for (name, _), answer in zip(actions, answers, strict=True):
            assert answer.status in EXPECTED, (name, answer)
            self.done[f"{name} {answer.status}"] += 1

    def _action(self, listed: Listed) -> tuple[str, Callable[[], Awaitable[Answer]]]:
        team = self._random.choice(self._teams)
        if self._random.random() < 0.4:
            kind = self._random.choices(_KINDS, (5, 2, 3, 1))[0]
            names = [name for name in _names(listed[team, kind]) if name not in self._used]
            if names:
                name = self._random.choice(names)
                self._doomed.add(name)
                return f"delete {kind}", lambda: team.erase(kind, name)
        may_scale = self._is_reviewed or team is self._teams[-1]
        if self._random.random() < 0.1 and may_scale and listed[team, "Deployment"]:
            name = self._random.choice(_names(listed[team, "Deployment"]))
            replicas = self._chosen(0, 1, 3)
            return "scale Deployment", lambda: team.scale(name, replicas)
        templates, claims = (
            [name for name in _names(listed[team, kind]) if name not in self._doomed]
            for kind in ("ResourceClaimTemplate", "ResourceClaim")
        )
        manifest = self._manifest(templates, claims)
        self._used.update(_templates(manifest))
        return f"create {manifest['kind']}", lambda: team.attempt(manifest)

    def _manifest(self, templates: list[str], claims: list[str]) -> Manifest:
        self._number += 1
        name = f"x{self._number}"
        kind = self._random.choices(_KINDS, (6, 2, 3, 2))[0]
        if kind == "ResourceClaim":
            return claim(name, *self._requests())
        if kind == "ResourceClaimTemplate":
            return template(name, *self._requests())
        used = tuple(self._random.sample(templates, min(len(templates), self._chosen(1, 1, 2))))
        on = ON_H100 if self._random.random() < 0.5 else {}
        if kind == "Deployment" and used:
            return deployment_with(name, self._chosen(1, 2, 3), templates=used, on=on)
        if not used or self._random.random() < 0.05:
            later = f"x{self._number + 3}"
            self.later.add(later)
            used = (later,)
        named = tuple(self._random.sample(claims, min(len(claims), self._chosen(0, 0, 1))))
        return pod_with(name, templates=used if not named else used[:1], claims=named, on=on)

    def _requests(self) -> tuple[Manifest, ...]:
        return tuple(self._request() for _ in range(self._chosen(1, 1, 2)))

    def _request(self) -> Manifest:
        if self._random.random() < 0.2:
            return first_available(*(self._form() for _ in range(2)))
        form = self._form()
        if self._random.random() < 0.05:
            return form | {"count": self._chosen(33, 2**31, 2**63 - 1)}
        return form

    def _form(self) -> Manifest:
        device_class = self._random.choices((SHARED, H100, WHOLE, NET), (6, 3, 1, 1))[0]
        if device_class in (WHOLE, NET):
            return exactly(device_class)
        memory = self._random.choice(_SIZES)
        return exactly(device_class, memory=memory, cores=self._random.choice(("", "5", "20")))

    def _chosen(self, *values: int) -> int:
        return self._random.choice(values)


def _names(items: list[Manifest]) -> list[str]:
    return [item["metadata"]["name"] for item in items]


def _templates(item: Manifest) -> list[str]:
    """Return the names of the templates that a pod or a Deployment uses."""
    spec = item["spec"]
    spec = spec["template"]["spec"] if item["kind"] == "Deployment" else spec
    return [
        used["resourceClaimTemplateName"]
        for used in (spec.get("resourceClaims") or ())
        if "resourceClaimTemplateName" in used
    ]
