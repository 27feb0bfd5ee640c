"""The policy of a namespace, also while policies change."""

from typing import Any

import msgspec
import pytest
from support.fakes.owner_cluster import FixedView, OwnerCluster, around, policy

from ledger.kube.api.cluster_ports import Changed, Interrupted, Listed, Reached
from ledger.kube.api.objects import Workload
from webhook.api.admission_review import UserInfo
from webhook.context.cluster_context import ClusterContext
from webhook.context.namespace_policies import NamespacePolicy, lint


def namespaces(**labels: dict[str, str]) -> Listed[Workload]:
    manifests = [{"metadata": {"name": name, "labels": of}} for name, of in labels.items()]
    return Listed(1, msgspec.convert(manifests, list[Workload]))


def known(*policies: Workload, **labels: dict[str, str]) -> ClusterContext:
    """Return a context with these policies and these namespaces."""
    context = around(FixedView(), default=NamespacePolicy(mode="warn"))
    context.policies.relabelled(context.namespaces.take(namespaces(**labels)))
    context.policies.take(Listed(1, list(policies)))
    return context


def name_of(context: ClusterContext, namespace: str) -> str:
    return context.policies.of(namespace).name


def test_settings_apply_when_no_policy_selects_a_namespace() -> None:
    context = known(policy("p", namespaces=["other"]), team={})
    assert context.policies.of("team") == NamespacePolicy(mode="warn")


def test_field_missing_in_a_policy_has_its_default_not_the_setting() -> None:
    context = known(policy("p", namespaces=["team"]), team={})
    assert context.policies.of("team") == NamespacePolicy(name="p")


def test_every_field_of_a_policy_is_read() -> None:
    selected = known(
        policy(
            "p",
            mode="warn",
            onExceeded="pending",
            surge="strict",
            elastic="max",
            podsOnly=True,
            exempt={"users": ["ada"], "groups": ["ops"]},
            defaultQuota={"hard": {"limits.nvidia.com/gpu": 4}},
            foreignHolders="none",
            missingClaimTemplates="deny",
            unmappedDeviceClasses="warn",
        ),
        team={},
    ).policies.of("team")
    assert selected.default_quota is not None
    assert (selected.default_quota.name, selected.default_quota.hard) == (
        "gpuledger-default",
        {"limits.nvidia.com/gpu": 4},
    )
    assert msgspec.structs.replace(selected, default_quota=None) == NamespacePolicy(
        mode="warn",
        on_exceeded="pending",
        surge="strict",
        elastic="max",
        pods_only=True,
        exempt_users=("ada",),
        exempt_groups=("ops",),
        foreign_holders="none",
        missing_claim_templates="deny",
        unmapped_device_classes="warn",
        name="p",
    )


def test_the_highest_priority_wins_and_among_equals_the_first_name() -> None:
    context = known(policy("b", priority=1), policy("a", priority=1), policy("c"), team={})
    assert name_of(context, "team") == "a"
    context.policies.take(Changed(2, policy("c", priority=2)))
    assert name_of(context, "team") == "c"
    context.policies.take(Changed(3, policy("c"), deleted=True))
    assert name_of(context, "team") == "a"


def test_policies_select_by_name_and_by_labels_and_both_must_hold() -> None:
    selector = {"matchLabels": {"env": "prod"}}
    context = known(
        policy("p", namespaces=["team", "lab"], namespaceSelector=selector),
        team={"env": "prod"},
        lab={"env": "test"},
        other={"env": "prod"},
    )
    assert [name_of(context, namespace) for namespace in ("team", "lab", "other")] == ["p", "", ""]


def test_policy_is_selected_again_when_a_label_changes() -> None:
    context = known(policy("p", namespaceSelector={"matchLabels": {"env": "prod"}}), team={})
    assert name_of(context, "team") == ""
    labelled = msgspec.convert({"metadata": {"name": "team", "labels": {"env": "prod"}}}, Workload)
    context.policies.relabelled(context.namespaces.take(Changed(2, labelled)))
    assert name_of(context, "team") == "p"


def test_a_namespace_that_is_not_known_yet_is_chosen_for_again_once_it_is() -> None:
    context = known(policy("p", namespaceSelector={"matchLabels": {"env": "prod"}}))
    assert name_of(context, "team") == ""
    context.namespaces.take(namespaces(team={"env": "prod"}))
    assert name_of(context, "team") == "p"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"mode": "perhaps"}, "spec.mode"),
        ({"priority": 2**40}, "spec.priority"),
        ({"podsOnly": "yes"}, "spec.podsOnly"),
        (
            {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}},
            "spec.namespaceSelector.matchExpressions[0]",
        ),
    ],
)
def test_invalid_policy_keeps_its_last_spec_and_is_named(spec: dict[str, Any], said: str) -> None:
    context = known(policy("p", mode="off"), team={})
    context.policies.take(Changed(2, policy("p", **spec)))
    assert context.policies.of("team").mode == "off"
    [problem] = context.problems()[-1:]
    assert problem.startswith("LedgerPolicy p: ")
    assert said in problem
    assert "left out" not in problem  # as it would be of a quota
    assert lint(policy("p", **spec))[0].startswith("this policy is not used: ")
    context.policies.take(Changed(3, policy("p", mode="enforce")))
    assert context.policies.of("team").mode == "enforce"
    assert context.problems() == []


def test_a_policy_that_never_made_sense_selects_nothing() -> None:
    context = known(policy("p", mode="perhaps"), team={})
    assert name_of(context, "team") == ""
    context.policies.take(Listed(2, []))
    assert context.problems() == []


def test_a_list_replaces_what_was_known() -> None:
    context = known(policy("p"), team={})
    assert name_of(context, "team") == "p"
    context.policies.take(Reached(2))
    assert name_of(context, "team") == "p"
    context.policies.take(Listed(3, []))
    assert name_of(context, "team") == ""


def test_unreadable_list_is_not_waited_for() -> None:
    context = around(FixedView(), OwnerCluster(), policies_known=False)
    for watched in (context.policies, context.namespaces):
        watched.take(Reached(1))
        assert not watched.listed.is_set()
        watched.take(Interrupted("forbidden"))
        assert watched.listed.is_set()


@pytest.mark.parametrize(
    ("user", "exempt"),
    [
        (UserInfo("ada"), True),
        (UserInfo("bob", ("ops", "all")), True),
        (UserInfo("bob", ("all",)), False),
        (UserInfo("ops", ("ada",)), False),
    ],
)
def test_who_is_exempt_is_an_authenticated_user_or_group(user: UserInfo, exempt: bool) -> None:
    treated = NamespacePolicy(exempt_users=("ada",), exempt_groups=("ops",))
    assert treated.may_exceed_limits(user) is exempt


def test_limits_may_be_exceeded_only_in_mode_warn_without_exemptions() -> None:
    assert not NamespacePolicy().may_exceed_limits(UserInfo("ada", ("ops",)))
    assert NamespacePolicy(mode="warn").may_exceed_limits(UserInfo("ada"))


@pytest.mark.parametrize(
    ("treated", "charges"),
    [
        (NamespacePolicy(), True),
        (NamespacePolicy(pods_only=True), False),
        (NamespacePolicy(on_exceeded="pending"), False),
    ],
)
def test_roots_are_charged_unless_pods_alone_are_or_wait(
    treated: NamespacePolicy, charges: bool
) -> None:
    assert treated.charges_roots is charges


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"mode": "off", "defaultQuota": {"hard": {}}}, "spec.defaultQuota"),
        ({"onExceeded": "pending", "surge": "strict"}, "onExceeded is pending"),
        ({"podsOnly": True, "surge": "reserve"}, "podsOnly is true"),
        ({"onExceeded": "pending", "elastic": "max"}, "spec.elastic"),
        ({"podsOnly": True, "elastic": "max"}, "spec.elastic"),
    ],
)
def test_field_without_effect_is_warned_about(spec: dict[str, Any], said: str) -> None:
    [warning] = lint(policy("p", **spec))
    assert said in warning
    assert lint(policy("p")) == ()
