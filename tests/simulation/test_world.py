"""The simulated world: its kinds are charged as by the product, and proofs get enough time."""

import pytest

from ledger.kube.api.api_resources import Resource
from ledger.kube.api.objects import ObjectMeta, Workload
from simulation.actors.admitted_writes import ETCD_SECONDS_MAX
from simulation.model import kinds
from simulation.model.settings import RULES, SETTLE_SECONDS
from simulation.oracle import quota_object_oracle
from simulation.script.operations_author import LATE_SECONDS_MAX
from webhook.context.admission_settings import AdmissionSettings
from webhook.kinds.workload_envelope import Envelope, envelope_of


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
