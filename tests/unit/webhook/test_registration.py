"""What the webhook configurations say. Whether a real API server understands it is tested there."""

import base64
from typing import Any

import pytest
import yaml

from webhook import registration
from webhook.registration import Address, Service

RESOURCES = ("nvidia.com/gpu", "nvidia.com/gpumem")


def webhooks(target: str | Service = "https://gpuledger.example:8443") -> list[dict[str, Any]]:
    found = registration.configurations(Address(target, b"PEM"), RESOURCES, ("kube-system", "own"))
    return [webhook for configuration in found for webhook in configuration["webhooks"]]


def test_validating_fails_closed_and_mutating_open() -> None:
    mutating, validating = webhooks()
    assert (mutating["failurePolicy"], validating["failurePolicy"]) == ("Ignore", "Fail")
    assert (mutating["timeoutSeconds"], validating["timeoutSeconds"]) == (2, 10)
    assert (mutating["sideEffects"], validating["sideEffects"]) == ("None", "NoneOnDryRun")
    assert mutating["reinvocationPolicy"] == "Never"


def test_only_creation_is_mutated_and_resizes_are_validated() -> None:
    mutating, validating = webhooks()
    assert [(rule["operations"], rule["resources"]) for rule in mutating["rules"]] == [
        (["CREATE"], ["pods"])
    ]
    assert [(rule["operations"], rule["resources"]) for rule in validating["rules"]] == [
        (["CREATE", "UPDATE"], ["pods"]),
        (["UPDATE"], ["pods/resize"]),
    ]


def test_the_named_namespaces_are_exempt() -> None:
    for webhook in webhooks():
        [expression] = webhook["namespaceSelector"]["matchExpressions"]
        assert (expression["operator"], expression["values"]) == ("NotIn", ["kube-system", "own"])


@pytest.mark.parametrize("slash", ["", "/"])
def test_a_base_url_is_completed_with_the_path(slash: str) -> None:
    bundle = base64.b64encode(b"PEM").decode()
    assert [webhook["clientConfig"] for webhook in webhooks(f"https://a:1{slash}")] == [
        {"url": "https://a:1/admission/mutate", "caBundle": bundle},
        {"url": "https://a:1/admission/validate", "caBundle": bundle},
    ]


def test_a_service_is_referred_to_by_name() -> None:
    validating = webhooks(Service("gpuledger-system", "gpuledger"))[1]
    assert validating["clientConfig"]["service"] == {
        "namespace": "gpuledger-system",
        "name": "gpuledger",
        "port": 443,
        "path": "/admission/validate",
    }


def test_every_managed_resource_is_in_the_condition() -> None:
    for webhook in webhooks():
        assert (
            '["nvidia.com/gpu","nvidia.com/gpumem"]' in webhook["matchConditions"][0]["expression"]
        )


def test_the_yaml_holds_the_same_objects_without_aliases() -> None:
    found = registration.configurations(Address("https://a:1", b"PEM"), RESOURCES, ("own",))
    rendered = registration.render(found)
    assert list(yaml.safe_load_all(rendered)) == list(found)
    assert "&id" not in rendered
