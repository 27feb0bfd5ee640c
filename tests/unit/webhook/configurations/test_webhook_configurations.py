"""The fields of the webhook configurations. End-to-end tests apply them to an API server."""

import base64
from typing import Any

import msgspec
import pytest
import yaml

from webhook.configurations import webhook_configurations
from webhook.configurations.webhook_configurations import (
    ReviewScope,
    ServiceReference,
    WebhookAddress,
)
from webhook.kinds.kind_catalog import KindCatalog

RESOURCES = ("nvidia.com/gpu", "nvidia.com/gpumem")
CATALOG = KindCatalog.load()
REVIEWED = ReviewScope(RESOURCES, CATALOG, ("kube-system", "own"), ("own", "hami"))

Entry = dict[str, Any]


def webhooks(
    target: str | ServiceReference = "https://gpuledger.example:8443",
    reviewed: ReviewScope = REVIEWED,
) -> list[Entry]:
    configurations = webhook_configurations.configurations(WebhookAddress(target, b"PEM"), reviewed)
    return [webhook for configuration in configurations for webhook in configuration["webhooks"]]


def named(name: str, reviewed: ReviewScope = REVIEWED) -> Entry:
    [webhook] = [
        webhook
        for webhook in webhooks(reviewed=reviewed)
        if webhook["name"] == f"{name}.gpuledger.io"
    ]
    return webhook


def rules(webhook: Entry) -> list[tuple[list[str], list[str], list[str]]]:
    return [(rule["apiGroups"], rule["operations"], rule["resources"]) for rule in webhook["rules"]]


@pytest.mark.parametrize("name", ["pods.validate", "deployments.apps.validate"])
def test_charged_objects_fail_closed_with_the_longest_timeout(name: str) -> None:
    webhook = named(name)
    assert (webhook["failurePolicy"], webhook["timeoutSeconds"]) == ("Fail", 10)
    assert webhook["sideEffects"] == "NoneOnDryRun"


def test_mutating_webhook_fails_open_and_reviews_creations_only() -> None:
    webhook = named("pods.mutate")
    assert (webhook["failurePolicy"], webhook["timeoutSeconds"]) == ("Ignore", 2)
    assert (webhook["sideEffects"], webhook["reinvocationPolicy"]) == ("None", "Never")
    assert rules(webhook) == [([""], ["CREATE"], ["pods"])]


def test_ignore_label_of_hami_exempts_from_the_mutating_webhook_only() -> None:
    ignored = {"key": "hami.io/webhook", "operator": "NotIn", "values": ["ignore"]}
    for webhook in webhooks():
        selectors = [webhook.get(f"{selected}Selector", {}) for selected in ("object", "namespace")]
        exemptions = [ignored in selector.get("matchExpressions", ()) for selector in selectors]
        is_mutating = webhook["name"].startswith("pods.mutate")
        assert exemptions == [is_mutating, is_mutating], webhook["name"]


def test_pods_and_their_resizes_are_validated() -> None:
    assert rules(named("pods.validate")) == [
        ([""], ["CREATE", "UPDATE"], ["pods"]),
        ([""], ["UPDATE"], ["pods/resize"]),
    ]


def test_annotation_writes_fail_closed_except_for_trusted_users() -> None:
    webhook = named("claims.validate")
    assert rules(webhook) == [
        ([""], ["UPDATE"], ["pods/status"]),
        ([""], ["CREATE"], ["pods/binding", "bindings"]),
    ]
    assert webhook["failurePolicy"] == "Fail"
    trusted, _ = (condition["expression"] for condition in webhook["matchConditions"])
    assert trusted == '!(request.userInfo.username in ["hami","own"])'


def test_privileged_ephemeral_containers_fail_closed() -> None:
    webhook = named("ephemeralcontainers.validate")
    assert rules(webhook) == [([""], ["UPDATE"], ["pods/ephemeralcontainers"])]
    assert webhook["failurePolicy"] == "Fail"
    asks, privileged = (condition["expression"] for condition in webhook["matchConditions"])
    assert '["nvidia.com/gpu","nvidia.com/gpumem"]' in asks
    assert "privileged" in privileged


def test_resource_claims_fail_closed_in_the_version_that_is_read() -> None:
    webhook = named("resourceclaims.validate")
    assert rules(webhook) == [(["resource.k8s.io"], ["CREATE", "UPDATE"], ["resourceclaims"])]
    assert [rule["apiVersions"] for rule in webhook["rules"]] == [["v1"]]
    assert (webhook["failurePolicy"], webhook["timeoutSeconds"]) == ("Fail", 10)
    assert (webhook["sideEffects"], webhook["matchPolicy"]) == ("NoneOnDryRun", "Equivalent")


def test_creations_of_claim_templates_fail_open() -> None:
    webhook = named("resourceclaimtemplates.validate")
    assert rules(webhook) == [(["resource.k8s.io"], ["CREATE"], ["resourceclaimtemplates"])]
    assert (webhook["failurePolicy"], webhook["sideEffects"]) == ("Ignore", "None")


def test_statuses_of_resource_claims_are_reviewed_if_wanted() -> None:
    reviewed = msgspec.structs.replace(REVIEWED, review_claim_status=True)
    assert rules(named("resourceclaims.validate", reviewed)) == [
        (["resource.k8s.io"], ["CREATE", "UPDATE"], ["resourceclaims"]),
        (["resource.k8s.io"], ["UPDATE"], ["resourceclaims/status"]),
    ]


@pytest.mark.parametrize("kind", list(CATALOG), ids=lambda kind: str(kind.name))
def test_kinds_are_validated_in_every_served_version(kind: Any) -> None:
    webhook = named(f"{kind.name}.validate")
    assert rules(webhook) == [([kind.group], ["CREATE", "UPDATE"], [kind.resource])]
    assert [rule["apiVersions"] for rule in webhook["rules"]] == [["*"]]
    assert webhook["failurePolicy"] == ("Fail" if kind.root else "Ignore")
    assert '["nvidia.com/gpu","nvidia.com/gpumem"]' in webhook["matchConditions"][0]["expression"]


def test_scales_of_all_kinds_fail_open() -> None:
    webhook = named("scales.validate")
    assert webhook["failurePolicy"] == "Ignore"
    reviewed = {
        f"{name}.{group}"
        for groups, operations, resources in rules(webhook)
        for group in groups
        for name in resources
        if operations == ["UPDATE"]
    }
    expected = {f"{kind.resource}/scale.{kind.group}" for kind in CATALOG.scalable}
    assert reviewed == expected >= {"deployments/scale.apps"}
    assert all(
        "template" not in condition["expression"] for condition in webhook["matchConditions"]
    )


def test_entry_for_scales_is_absent_without_scalable_kinds() -> None:
    configuration = webhook_configurations.configurations(
        WebhookAddress("https://a:1", b"PEM"), ReviewScope(RESOURCES, KindCatalog(()), ("own",))
    )[1]
    names = [webhook["name"] for webhook in configuration["webhooks"]]
    assert names == [
        f"{name}.validate.gpuledger.io"
        for name in (
            "pods",
            "claims",
            "ephemeralcontainers",
            "resourceclaims",
            "resourceclaimtemplates",
            "definitions",
        )
    ]


def test_definitions_of_limits_fail_open() -> None:
    webhook = named("definitions.validate")
    assert (webhook["failurePolicy"], webhook["sideEffects"]) == ("Ignore", "None")
    assert webhook["timeoutSeconds"] == 2
    assert [(rule["resources"], rule["scope"]) for rule in webhook["rules"]] == [
        (["resourcequotas"], "Namespaced"),
        (["universeresourcequotas"], "Cluster"),
        (["ledgerpolicies"], "Cluster"),
    ]


def test_named_namespaces_are_exempt_in_every_charging_entry() -> None:
    for webhook in webhooks():
        if webhook["name"] == "definitions.validate.gpuledger.io":
            continue
        expression, *_ = webhook["namespaceSelector"]["matchExpressions"]
        assert (expression["operator"], expression["values"]) == ("NotIn", ["kube-system", "own"])


def test_entries_have_unique_names() -> None:
    names = [webhook["name"] for webhook in webhooks()]
    assert len(names) == len(set(names)) == 8 + len(list(CATALOG))


@pytest.mark.parametrize("slash", ["", "/"])
def test_base_url_is_completed_with_the_path(slash: str) -> None:
    bundle = base64.b64encode(b"PEM").decode()
    mutating, *validating = (webhook["clientConfig"] for webhook in webhooks(f"https://a:1{slash}"))
    assert mutating == {"url": "https://a:1/admission/mutate", "caBundle": bundle}
    for config in validating:
        assert config == {"url": "https://a:1/admission/validate", "caBundle": bundle}


def test_service_is_referenced_by_name() -> None:
    for webhook in webhooks(ServiceReference("gpuledger-system", "gpuledger"))[1:]:
        assert webhook["clientConfig"]["service"] == {
            "namespace": "gpuledger-system",
            "name": "gpuledger",
            "port": 443,
            "path": "/admission/validate",
        }


def test_yaml_has_the_same_objects_without_aliases() -> None:
    configurations = webhook_configurations.configurations(
        WebhookAddress("https://a:1", b"PEM"), REVIEWED
    )
    rendered = webhook_configurations.render(configurations)
    assert list(yaml.safe_load_all(rendered)) == list(configurations)
    assert "&id" not in rendered
