"""The rights of the service in a cluster: the lists that deploy/ has to be equal to."""

from typing import Final

from tests.e2e.harness.cluster import Cluster

Rights = dict[tuple[str, str, str], set[str]]
"""By group, resource and the only name (empty: any name), the verbs."""

READ: Final = ("get", "list", "watch")
RIGHTS: Final[dict[tuple[str, str, str], tuple[str, ...]]] = {
    ("", "pods", ""): (*READ, "patch"),
    ("", "pods/binding", ""): ("create",),
    ("", "nodes", ""): (*READ, "patch"),
    ("events.k8s.io", "events", ""): ("create",),
    ("", "resourcequotas", ""): (*READ, "create"),
    ("", "resourcequotas/status", ""): ("patch",),
    ("", "namespaces", ""): READ,
    **{
        ("apps", kind, ""): READ
        for kind in ("deployments", "replicasets", "statefulsets", "daemonsets")
    },
    **{("batch", kind, ""): READ for kind in ("jobs", "cronjobs")},
    ("jobset.x-k8s.io", "jobsets", ""): READ,
    ("leaderworkerset.x-k8s.io", "leaderworkersets", ""): READ,
    **{("kubeflow.org", kind, ""): READ for kind in ("mpijobs", "pytorchjobs", "tfjobs")},
    ("trainer.kubeflow.org", "trainjobs", ""): READ,
    **{("ray.io", kind, ""): READ for kind in ("rayclusters", "rayjobs", "rayservices")},
    **{
        ("resource.k8s.io", kind, ""): READ
        for kind in ("resourceclaims", "resourceclaimtemplates", "deviceclasses", "resourceslices")
    },
    ("apiextensions.k8s.io", "customresourcedefinitions", ""): ("list",),
    ("gpuledger.io", "universeresourcequotas", ""): READ,
    ("gpuledger.io", "universeresourcequotas/status", ""): ("patch",),
    ("gpuledger.io", "ledgerpolicies", ""): READ,
    ("gpuledger.io", "ledgerpolicies/status", ""): ("patch",),
    **{
        ("admissionregistration.k8s.io", f"{kind}webhookconfigurations", name): verbs
        for kind in ("mutating", "validating")
        for name, verbs in (("", ("create",)), ("gpuledger", ("get", "patch")))
    },
    ("authentication.k8s.io", "tokenreviews", ""): ("create",),
    ("authorization.k8s.io", "subjectaccessreviews", ""): ("create",),
}
"""All that the service may do: (group, resource, the only name or any), and the verbs."""


PREEMPTION: Final[dict[tuple[str, str, str], tuple[str, ...]]] = {
    ("", "pods/eviction", ""): ("create",),
    ("policy", "poddisruptionbudgets", ""): ("list",),
}
"""The rights that deploy/preemption adds."""


async def rights_of(cluster: Cluster, user: str, namespace: str) -> Rights:
    """Return the rights of a user in a namespace, by all roles together."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    answer = await cluster.must(
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
        review,
        headers={"Impersonate-User": user},
    )
    rights: Rights = {}
    for rule in answer["status"]["resourceRules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for name in rule.get("resourceNames", [""]):
                    rights.setdefault((group, resource, name), set()).update(rule["verbs"])
    return rights
