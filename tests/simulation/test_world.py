"""The simulated world: seeds reach the situations that the rules are about."""

from itertools import chain

import pytest

from ledger.kube.api.api_resources import Resource
from ledger.kube.api.objects import ObjectMeta, Workload
from simulation.actors.admitted_writes import ETCD_SECONDS_MAX
from simulation.model import kinds
from simulation.model.settings import RULES, SETTLE_SECONDS
from simulation.oracle import quota_object_oracle
from simulation.run import run
from simulation.script.operations_author import LATE_SECONDS_MAX
from webhook.context.admission_settings import AdmissionSettings
from webhook.kinds.workload_envelope import Envelope, envelope_of

SEEDS = (*range(120), 123, 190, 219)
"""The first ones, and three that reach what is rare.

In 123 cards are full when a pod is bound, in 190 a Deployment is fenced, and in 219 a pod that
has ended still has HAMi's lock of its node.
"""

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def traces() -> list[str]:
    """Return all lines of some runs."""
    return list(chain.from_iterable(run(seed).trace for seed in SEEDS))


@pytest.mark.parametrize(
    "words",
    [
        ("Reserved c1/", "deployments.apps/"),
        ("Reserved c2/", "pods/", "deployments.apps/"),
        ("Reserved c1/", "trainings.example.io/"),
        ("Reserved", "pods/", " 0 -"),
        ("Committed", "jobs.batch/"),
        ("Raised", "deployments.apps/"),
        ("do Create", "copies=6"),
        ("Released", "deployments.apps/", "fenced"),
        ("Released", "deployments.apps/", "deleted"),
        ("Released", "jobs.batch/", "absent"),
        ("Observed", "pods/", "moved"),
        ("Observed", "deployments.apps/", "unreserved"),
        ("Observed", "pods/", "late"),
        ("LimitSet universe/",),
        ("AccountClosed universe/",),
        ("Described c2/",),
        ("UPDATE", "scale: denied"),
        ("UPDATE", "trainings.example.io/", "scale: allowed"),
        ("CREATE", "replicasets.apps/", "no answer"),
        ("CREATE", "jobs.batch/", "denied"),
        ("do CutLink",),
        ("do MoveCluster",),
        ("do SetPolicy", "podsOnly"),
        ("do DeleteRoot", "ORPHAN"),
        ("CardsRegistered c1/",),
        ("NodeRemoved c1/",),
        ("Placed c1/n", "pods/"),
        ("Advanced c1/", "pods/"),
        ("Unplaced c1/", "unbound"),
        ("Placed c1/n", "seen"),
        ("Claimed c1/n",),
        ("s0 binds", ": bound"),
        ("s1 binds", ": bound"),
        ("binds", "no answer"),
        ("binds", "whether it is bound is not known"),
        ("binds", "is locked for"),
        ("binds", "CardInsufficientMemory"),
        ("binds", "a webhook refuses Bindings"),
    ],
    ids=" ".join,
)
def test_some_seed_reaches(words: tuple[str, ...], traces: list[str]) -> None:
    assert any(all(word in line for word in words) for line in traces)


@pytest.mark.parametrize("resource", kinds.ROOTS.values(), ids=str)
@pytest.mark.parametrize("count", [0, 1, 3])
def test_what_must_be_charged_is_worked_out_as_the_product_does(
    resource: Resource, count: int
) -> None:
    pods = kinds.template(1, 2_000, "", "")
    spec = kinds.spec_of(resource, count, pods)
    root = Workload(resource.api_version, resource.kind, ObjectMeta(name="a"), spec)
    kind = kinds.catalog().of_resource(resource.group, resource.plural)
    assert kind is not None
    envelope = envelope_of(kind, root, RULES)
    assert isinstance(envelope, Envelope)
    assert quota_object_oracle.envelope(root) == envelope.demand
    assert kinds.count_of(kinds.with_count(root, count + 1)) == count + 1


def test_the_bound_of_proof_is_longer_than_any_request() -> None:
    longest = AdmissionSettings().deadline + 1.0 + ETCD_SECONDS_MAX + LATE_SECONDS_MAX
    assert longest < SETTLE_SECONDS
