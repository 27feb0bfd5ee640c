"""The envelope of an object of each kind, and the denial when the object is invalid."""

from copy import deepcopy
from typing import Any

import msgspec
import pytest
from support.builders.admission_reviews import recorded
from support.builders.kind_objects import BUILTIN, Case, all_cases, kind_named, workload

from ledger.core.model.denials import Denial, Reason
from ledger.kube.api.objects import Workload
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.gpu_type_annotation import CardType
from ledger.kube.requests.recorded_labels import RecordedLabels
from ledger.kube.vendors.vendors import NVIDIA, Vendor
from webhook.admission.objects.scale_admission import with_replicas
from webhook.kinds.kind_schema import WorkloadKind
from webhook.kinds.workload_envelope import Envelope, envelope_of, surge_demand

RULES = DemandRules()
GPU, MEMORY = "nvidia.com/gpu", "nvidia.com/gpumem"
POD = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "main", "resources": {"limits": {GPU: 1, MEMORY: "8k"}}}]},
}
RECORDED = {
    "cronjob": (1, 8000),
    "daemonset": (0, 0),
    "deployment": (3, 24000),
    "job": (4, 32000),
    "jobset": (6, 48000),
    "leaderworkerset": (8, 64000),
    "mpijob": (4, 32000),
    "pytorchjob": (4, 32000),
    "raycluster": (2, 16000),
    "statefulset": (2, 16000),
}
DEPLOYMENT = kind_named("deployments.apps")


def deployment(template: Any = POD, generation: int = 1, **spec: Any) -> Workload:
    return workload(
        {"metadata": {"generation": generation}, "spec": {"template": deepcopy(template), **spec}}
    )


def refused(kind: WorkloadKind, given: Workload, rules: DemandRules = RULES) -> Denial:
    denial = envelope_of(kind, given, rules)
    assert isinstance(denial, Denial)
    return denial


def accepted(
    kind: WorkloadKind, given: Workload, rules: DemandRules = RULES, **options: Any
) -> Envelope:
    envelope = envelope_of(kind, given, rules, **options)
    assert isinstance(envelope, Envelope), envelope
    return envelope


@pytest.mark.parametrize(
    ("kind", "case"),
    all_cases(),
    ids=lambda parameter: getattr(parameter, "name", "").replace(" ", "-"),
)
def test_an_object_may_run_what_was_worked_out_by_hand(kind: WorkloadKind, case: Case) -> None:
    envelope = accepted(kind, case.workload, **case.options)
    assert (envelope.demand, envelope.finished) == (case.demand, case.finished)


@pytest.mark.parametrize(("recording", "amounts"), list(RECORDED.items()))
def test_a_recorded_object_may_run_what_was_worked_out_by_hand(
    recording: str, amounts: tuple[int, int]
) -> None:
    for _, review in recorded(f"{recording}-create", "validate"):
        request = review["request"]
        resource = request["resource"]
        if request["operation"] != "CREATE" or resource["resource"] != f"{recording}s":
            continue
        kind = BUILTIN.of_resource(resource["group"], resource["resource"])
        assert kind is not None
        created = msgspec.convert(request["object"], Workload)
        assert BUILTIN.of_owner(created.api_version, created.kind) is kind
        cards, memory = amounts
        expected = {GPU: cards, MEMORY: memory} if cards else {}
        assert accepted(kind, created).demand == expected
        return
    pytest.fail(f"{recording}-create holds no review of its creation")


@pytest.mark.parametrize("replicas", [-1, 2**31, "3", 1.5, True, [], {}])
def test_replicas_that_make_no_sense_are_refused_by_name(replicas: Any) -> None:
    denial = refused(DEPLOYMENT, deployment(replicas=replicas))
    assert (denial.field, denial.reason) == ("spec.replicas", Reason.INVALID_COUNT)
    assert not denial.transient
    assert "spec.replicas" in denial.remedy


@pytest.mark.parametrize(
    ("replicas", "shown"), [(True, "true"), (False, "false"), ({}, "an object"), (1.5, "1.5")]
)
def test_a_value_is_quoted_as_it_is_written(replicas: Any, shown: str) -> None:
    assert refused(DEPLOYMENT, deployment(replicas=replicas)).value == shown


def test_a_count_inside_a_list_is_refused_by_its_place() -> None:
    body = {"spec": {"workerGroupSpecs": [{}, {"template": POD, "replicas": "many"}]}}
    denial = refused(kind_named("rayclusters.ray.io"), workload(body))
    assert (denial.field, denial.value) == ("spec.workerGroupSpecs[1].replicas", "many")


def test_a_group_of_less_than_its_leader_is_refused() -> None:
    body = {"spec": {"leaderWorkerTemplate": {"size": -3, "workerTemplate": POD}}}
    kind = kind_named("leaderworkersets.leaderworkerset.x-k8s.io")
    denial = refused(kind, workload(body))
    assert denial.value == "-3"
    assert "outside 0 to 2147483647" in denial.message


def test_a_percentage_that_is_none_is_refused_by_name() -> None:
    rollout = deployment(generation=2, strategy={"rollingUpdate": {"maxSurge": "a quarter"}})
    denial = envelope_of(DEPLOYMENT, rollout, RULES, surge="reserve")
    assert isinstance(denial, Denial)
    assert denial.field == "spec.strategy.rollingUpdate.maxSurge"


def test_a_suspension_that_is_neither_true_nor_false_is_refused_by_name() -> None:
    job = workload({"spec": {"suspend": "yes", "template": POD}})
    denial = refused(kind_named("jobs.batch"), job)
    assert (denial.field, denial.value) == ("spec.suspend", "yes")


def test_invalid_request_is_refused_by_its_field_in_the_object() -> None:
    pod: dict[str, Any] = deepcopy(POD)
    pod["spec"]["containers"][0]["resources"]["limits"][MEMORY] = "16Gi"
    denial = refused(DEPLOYMENT, deployment(pod, replicas=0))
    assert denial.field == f"spec.template.spec.containers[0].resources[{MEMORY}]"
    assert denial.reason == Reason.INVALID_QUANTITY


def test_invalid_request_without_a_template_is_refused_by_its_field() -> None:
    body = {"spec": {"trainer": {"resourcesPerNode": {"limits": {GPU: "half"}}}}}
    denial = refused(kind_named("trainjobs.trainer.kubeflow.org"), workload(body))
    assert denial.field == f"spec.trainer.resourcesPerNode[{GPU}]"


def test_a_bare_pod_spec_that_cannot_be_understood_is_refused_by_its_place() -> None:
    body = {"spec": {"predictor": {"containers": [{"resources": {"limits": {GPU: "half"}}}]}}}
    denial = refused(kind_named("inferenceservices.serving.kserve.io"), workload(body))
    assert denial.field == f"spec.predictor.containers[0].resources[{GPU}]"


def test_a_template_that_cannot_be_read_is_refused_by_its_place() -> None:
    pod = {"spec": {"containers": [{"name": "a"}, {"name": 7}]}}
    denial = refused(DEPLOYMENT, deployment(pod))
    assert denial.field == "spec.template.spec.containers[1].name"
    assert denial.reason == Reason.INVALID_REVIEW
    assert refused(DEPLOYMENT, deployment("web")).field == "spec.template"


def test_more_than_anything_has_is_refused() -> None:
    denial = refused(DEPLOYMENT, deployment(replicas=2**31 - 1, template=giant()))
    assert denial.reason == Reason.INVALID_QUANTITY
    assert f"beyond {2**40}" in denial.message


def giant() -> Any:
    limits = {GPU: 1, MEMORY: str(2**30)}
    return {"spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]}}


def test_unknown_amount_is_reported_with_its_field() -> None:
    whole = {"spec": {"containers": [{"name": "main", "resources": {"limits": {GPU: 1}}}]}}
    envelope = accepted(DEPLOYMENT, deployment(whole, replicas=2))
    assert envelope.unknown == MEMORY
    assert envelope.unknown_field == "spec.template.spec.containers[0].resources"
    assert accepted(DEPLOYMENT, deployment(whole, replicas=0)).unknown == ""


OTHER = Vendor(name="other", memory="example.com/mem", percentage="example.com/percent")


def sharing(resource: str, share: int) -> Any:
    limits = {resource: share}
    return {"spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]}}


def test_unknown_share_is_reported_when_nothing_else_is_asked_for() -> None:
    rules = DemandRules(vendors=(OTHER,))
    envelope = accepted(DEPLOYMENT, deployment(sharing("example.com/percent", 50)), rules)
    assert (envelope.demand, envelope.unknown) == ({}, "example.com/mem")


def test_two_unknown_resources_are_refused() -> None:
    rules = DemandRules(vendors=(NVIDIA, OTHER))
    roles = {
        "Master": {"template": sharing(GPU, 1)},
        "Worker": {"template": sharing("example.com/percent", 50), "replicas": 1},
    }
    kind = kind_named("pytorchjobs.kubeflow.org")
    denial = refused(kind, workload({"spec": {"pytorchReplicaSpecs": roles}}), rules)
    assert denial.reason == Reason.CARD_MEMORY_UNKNOWN
    worker = "spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].resources"
    assert denial.field == worker
    roles["Worker"]["replicas"] = 0
    assert accepted(kind, workload({"spec": {"pytorchReplicaSpecs": roles}}), rules).unknown


def test_types_of_cards_that_a_template_names_are_charged() -> None:
    rules = DemandRules(types=(CardType("v100"),))
    pod = {"metadata": {"annotations": {"nvidia.com/use-gputype": "V100"}}, "spec": POD["spec"]}
    demand = accepted(DEPLOYMENT, deployment(pod, replicas=2), rules).demand
    assert demand["v100.nvidia.com/gpumem"] == demand[MEMORY] == 16000


def test_unknown_card_type_is_refused_by_its_field_in_the_object() -> None:
    rules = DemandRules(types=(CardType("v100"),))
    pod = {"metadata": {"annotations": {"nvidia.com/use-gputype": "T4"}}, "spec": POD["spec"]}
    denial = refused(DEPLOYMENT, deployment(pod), rules)
    assert denial.field == "spec.template.metadata.annotations[nvidia.com/use-gputype]"


def test_traits_are_those_of_asking_templates_with_the_objects_labels() -> None:
    plain = {"metadata": {"labels": {"app": "ps"}}, "spec": {"containers": [{"name": "a"}]}}
    roles = {"Worker": {"template": POD}, "Chief": {"template": POD}, "PS": {"template": plain}}
    job = workload({"metadata": {"labels": {"team": "a"}}, "spec": {"tfReplicaSpecs": roles}})
    rules = DemandRules(worst_card_memory=16_000, labels=RecordedLabels(("app", "team"), 2))
    envelope = accepted(kind_named("tfjobs.kubeflow.org"), job, rules)
    assert envelope.traits == ("!best-effort,!read=2,app=web,team=a",)


def test_many_templates_with_labels_of_their_own_are_a_digest() -> None:
    def role(number: int) -> Any:
        labels = {f"k{index}": f"{number}-{'x' * 50}" for index in range(9)}
        return {"replicas": 1, "groupName": f"g{number}"} | {
            "template": {"metadata": {"labels": labels}, "spec": POD["spec"]}
        }

    ray_cluster = workload({"spec": {"workerGroupSpecs": [role(number) for number in range(30)]}})
    rules = DemandRules(
        worst_card_memory=16_000, labels=RecordedLabels(tuple(f"k{index}" for index in range(9)), 9)
    )
    envelope = accepted(kind_named("rayclusters.ray.io"), ray_cluster, rules)
    [text] = envelope.traits
    assert "!unread=" in text
    assert envelope.demand[MEMORY] > 0


def test_what_runs_nothing_now_keeps_its_traits() -> None:
    assert accepted(DEPLOYMENT, deployment(replicas=0)).traits == ("!best-effort",)


def test_scaled_is_what_the_object_will_be() -> None:
    three = deployment(replicas=3)
    six = with_replicas(DEPLOYMENT, three, 6)
    assert accepted(DEPLOYMENT, six).demand == {GPU: 6, MEMORY: 48000}
    assert accepted(DEPLOYMENT, three).demand == {GPU: 3, MEMORY: 24000}
    assert six.metadata.generation == 2


def test_a_scale_deep_in_the_spec_changes_that_field_alone() -> None:
    kind = kind_named("pytorchjobs.kubeflow.org")
    roles = {"Master": {"template": POD}, "Worker": {"template": POD, "replicas": 1}}
    job = workload({"spec": {"pytorchReplicaSpecs": roles}})
    assert accepted(kind, with_replicas(kind, job, 7)).demand == {GPU: 8, MEMORY: 64000}


def test_what_has_no_scale_is_not_scaled() -> None:
    with pytest.raises(ValueError, match=r"jobs\.batch has no scale"):
        with_replicas(kind_named("jobs.batch"), deployment(), 2)


@pytest.mark.parametrize(
    ("strategy", "cards"),
    [
        ({}, 1),
        ({"rollingUpdate": {"maxUnavailable": 1}}, 0),
        ({"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 2}}, 1),
        ({"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 0}}, 0),
        ({"type": "Recreate"}, 0),
    ],
)
def test_a_roll_out_that_may_miss_no_pod_needs_one_more(
    strategy: dict[str, Any], cards: int
) -> None:
    plain = {"spec": {"containers": [{"name": "a"}]}}
    old, new = (deployment(template, replicas=3, strategy=strategy) for template in (plain, POD))
    needed = surge_demand(DEPLOYMENT, old, new, RULES)
    assert needed == ({GPU: cards, MEMORY: 8000 * cards} if cards else {})


def test_a_scale_needs_no_surge() -> None:
    strategy = {"rollingUpdate": {"maxUnavailable": 0}}
    old, new = (deployment(replicas=replicas, strategy=strategy) for replicas in (3, 9))
    assert surge_demand(DEPLOYMENT, old, new, RULES) == {}


def test_a_roll_out_to_what_makes_no_sense_is_refused() -> None:
    denial = surge_demand(DEPLOYMENT, deployment(), deployment("web"), RULES)
    assert isinstance(denial, Denial)
