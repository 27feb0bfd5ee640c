"""Where the pods of a manifest would be placed, and what would help where they would not."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.builders.decide_and_fold import apply

from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.manifest_fit.fit_report import FitReport
from gpuledger.queries import fit_of_manifest
from gpuledger.storage.past_ledger import PastLedger
from ledger.core.model import commands
from ledger.core.model.cards import OWN, Card, Part, Phase, Share
from ledger.core.model.state import State
from ledger.runtime.settings.settings import Settings

GPU, MEMORY, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"
Fitting = Callable[..., Awaitable[FitReport]]


def card(uuid: str, index: int = 0, model: str = "A100", memory: int = 16_000) -> Card:
    return Card(uuid, index, model, memory, 100, 10)


def held(name: str, node: str, uuid: str, memory: int, cores: int = 0) -> list[commands.AnyCommand]:
    """Return the commands by which a pod of team x gets a part of a card."""
    pod = ("local/x", f"pods/{name}", name)
    part = Part("main", Phase.APP, (Share(uuid, memory, cores),))
    return [commands.Reserve(*pod, {GPU: 1}), commands.Place(*pod, f"local/{node}", (part,))]


FLEET: list[commands.AnyCommand] = [
    commands.RegisterCards("local/n1", OWN, (card("a"), card("b", 1))),
    commands.RegisterCards("local/n2", OWN, (card("c", 0, "T4"),)),
    commands.SetLimits("quota/local/team/gpus", ("local/team",), {f"limits.{MEMORY}": 40_000}),
    *held("small", "n1", "a", 8_000),
    *held("large", "n1", "b", 9_000),
    *held("other", "n2", "c", 12_000, 90),
]


def pod(annotations: dict[str, str] | None = None, **limits: int) -> dict[str, object]:
    names = {"gpu": GPU, "memory": MEMORY, "cores": CORES}
    asked = {names[name]: str(amount) for name, amount in limits.items()}
    spec = {"containers": [{"name": "main", "resources": {"limits": asked}}]}
    metadata = {"name": "job", "namespace": "team", "annotations": annotations or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@pytest.fixture
def fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fitting:
    """Fit a manifest on the fleet."""
    state = State()
    for command in FLEET:
        assert apply(state, command)

    async def recalled(settings: Settings, at: str) -> PastLedger:
        return PastLedger(state)

    monkeypatch.setattr(fit_of_manifest, "ledger_at", recalled)

    async def fitted(manifest: object, namespace: str | None = None, **settings: Any) -> FitReport:
        file = tmp_path / "manifest.yaml"
        file.write_text(yaml.safe_dump(manifest))
        where = Settings(store_dir=str(tmp_path), **settings)
        return await fit_of_manifest.fit(where, str(file), namespace, "")

    return fitted


async def test_the_decision_is_that_about_the_user(tmp_path: Path) -> None:
    body = json.dumps(pod({"hami.io/vgpu-time": "1"}, gpu=1)).encode()
    where, ledger = Settings(store_dir=str(tmp_path)), PastLedger(State())
    report = (await fit_of_manifest.fit_body(where, ledger, body, None, "alice")).report
    assert "alice may not write it" in report.answer


async def test_a_cluster_that_the_ledger_does_not_have_is_refused(fit: Fitting) -> None:
    with pytest.raises(CommandError, match="cluster 'absent' is not in the ledger, known are"):
        await fit(pod(gpu=1), cluster="absent")


async def test_nodes_that_fit_come_first_with_the_cards_that_would_be_taken(fit: Fitting) -> None:
    report = await fit(pod(gpu=1, memory=8_000))
    (fitted,) = report.pods
    assert report.fits
    assert report.allowed
    assert [(node.node, node.fits, node.score) for node in fitted.nodes] == [
        ("n1", True, 10),
        ("n2", False, 0),
    ]
    assert [(taken.uuid, taken.memory) for taken in fitted.nodes[0].taken] == [("a", 8_000)]
    assert [card.chosen for card in fitted.nodes[0].cards] == [True, False]
    assert fitted.nodes[1].reason == "1/1 CardInsufficientMemory"
    assert fitted.changes == []


async def test_cards_have_free_and_missing_amounts(fit: Fitting) -> None:
    report = await fit(pod(gpu=1, memory=8_002))
    (fitted,) = report.pods
    of_n1 = next(node for node in fitted.nodes if node.node == "n1")
    assert [(card.uuid, card.free_memory, card.short) for card in of_n1.cards] == [
        ("a", 8_000, 2),
        ("b", 7_000, 1_002),
    ]
    assert not report.fits


async def test_fewest_victims_and_least_change_are_reported(fit: Fitting) -> None:
    (fitted,) = (await fit(pod(gpu=1, memory=8_002))).pods
    texts = [change.text for change in fitted.changes]
    assert texts == [
        "evict x/small (8000 MiB) from n1",
        "ask for at most 8000 MiB of each card instead of 8002: it would fit on n1",
    ]


async def test_several_victims_are_chosen_only_when_one_is_not_enough(fit: Fitting) -> None:
    (fitted,) = (await fit(pod(gpu=2, memory=10_000))).pods
    of_n1 = next(node for node in fitted.nodes if node.node == "n1")
    assert {victim.pod for victim in of_n1.evict} == {"small", "large"}
    kinds = {change.what: (change.now, change.then) for change in fitted.changes}
    assert kinds == {"evict": (0, 0), "memory": (10_000, 7_000)}


async def test_largest_fitting_amount_is_reported(fit: Fitting) -> None:
    """Of all nodes, n2 has 4,000 MiB and 10 % left, and n1 has enough cores for no less memory."""
    (fitted,) = (
        await fit(pod({"nvidia.com/use-gputype": "T4"}, gpu=1, memory=1_000, cores=45))
    ).pods
    assert {change.what: change.then for change in fitted.changes}["cores"] == 10


async def test_one_pod_that_suffices_leaves_rather_than_smaller_ones(fit: Fitting) -> None:
    (fitted,) = (await fit(pod(gpu=1, memory=10_000))).pods
    of_n1 = next(node for node in fitted.nodes if node.node == "n1")
    assert [victim.pod for victim in of_n1.evict] == ["small"]
    annotated = pod({"nvidia.com/use-gpuuuid": "b"}, gpu=1, memory=10_000)
    (fitted,) = (await fit(annotated)).pods
    assert [victim.pod for victim in fitted.nodes[0].evict] == ["large"]


async def test_fewer_cards_are_a_change_where_they_help(fit: Fitting) -> None:
    (fitted,) = (await fit(pod(gpu=3, memory=4_000))).pods
    assert [(change.what, change.then, change.nodes) for change in fitted.changes] == [
        ("cards", 2, ["n1"])
    ]
    assert all(node.reason == "NodeInsufficientDevice" for node in fitted.nodes)


async def test_another_type_is_a_change_where_it_helps(fit: Fitting) -> None:
    report = await fit(pod({"nvidia.com/use-gputype": "T4"}, gpu=1, memory=8_000))
    texts = [change.text for change in report.pods[0].changes]
    assert "accept cards of any type: it would fit on n1" in texts


async def test_request_for_a_whole_card_reports_the_free_part_of_one(fit: Fitting) -> None:
    report = await fit(pod(gpu=1), worst_card_memory=16_000)
    changes = {change.what: change for change in report.pods[0].changes}
    assert changes["percentage"].then == 50
    assert changes["percentage"].nodes == ["n1"]


async def test_a_policy_of_the_settings_can_be_what_is_in_the_way(fit: Fitting) -> None:
    report = await fit(pod(gpu=1, memory=1_000), card_policies=("mutex",))
    assert [change.what for change in report.pods[0].changes] == ["evict", "unused"]
    assert report.pods[0].nodes[0].reason == "2/2 ExclusiveDeviceAllocateConflict"


async def test_quotas_are_asked_as_the_webhook_would(fit: Fitting) -> None:
    report = await fit(pod(gpu=6, memory=8_000))
    assert not report.allowed
    assert "Pod job would need 48000 MiB" in report.answer


async def test_each_template_of_a_workload_is_tried(fit: Fitting) -> None:
    template = {"metadata": {"labels": {"app": "a"}}, "spec": pod(gpu=1, memory=8_000)["spec"]}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "a"}}, "template": template}
    manifest = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": spec,
    }
    report = await fit(manifest, "team")
    assert [(fitted.pod, fitted.fits) for fitted in report.pods] == [("spec.template", True)]
    assert report.namespace == "team"


async def test_a_pod_is_fitted_in_its_own_namespace_or_not_at_all(fit: Fitting) -> None:
    assert (await fit(pod(gpu=1))).namespace == "team"
    with pytest.raises(
        CommandError, match="'team', which does not match the namespace 'other'"
    ) as stopped:
        await fit(pod(gpu=1), "other")
    assert stopped.value.status is Exit.USAGE


async def test_a_namespace_that_the_ledger_does_not_have_is_not_found(fit: Fitting) -> None:
    manifest: Any = pod(gpu=1)
    del manifest["metadata"]["namespace"]
    with pytest.raises(CommandError, match="namespace 'nowhere'") as stopped:
        await fit(manifest, "nowhere")
    assert stopped.value.status is Exit.NOT_FOUND


async def test_a_pod_that_wants_no_card_fits_without_one(fit: Fitting) -> None:
    report = await fit(pod())
    assert report.fits
    assert report.pods[0].nodes == []


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        ({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}, "cannot be explained"),
        ({"apiVersion": "v1", "kind": 5}, r"\$\.kind: Expected `str`"),
    ],
)
async def test_what_makes_no_pods_is_refused_by_its_file(
    fit: Fitting, manifest: object, said: str
) -> None:
    with pytest.raises(CommandError, match=rf"manifest\.yaml: .*{said}") as stopped:
        await fit(manifest)
    assert stopped.value.status is Exit.USAGE


async def test_invalid_request_is_reported_with_its_field(fit: Fitting) -> None:
    with pytest.raises(CommandError, match="scheduler-policy"):
        await fit(pod({"hami.io/gpu-scheduler-policy": "best"}, gpu=1, memory=1))


def with_claims(manifest: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return a pod that names resource claims."""
    claims = [{"name": name, "resourceClaimName": f"of-{name}"} for name in names]
    return {**manifest, "spec": {**manifest["spec"], "resourceClaims": claims}}


async def test_pod_of_resource_claims_is_not_reported_to_fit(fit: Fitting) -> None:
    """kube-scheduler's allocator chooses the devices, and no card of the ledger is tried."""
    report = await fit(with_claims(pod(), "a", "b"))
    assert not report.fits
    [untried] = report.pods
    assert (untried.claims, untried.fits, untried.total) == (("a", "b"), False, 0)
    assert "resource claims (a, b), which this does not try" in untried.untried()


async def test_cards_beside_resource_claims_are_tried(fit: Fitting) -> None:
    report = await fit(with_claims(pod(gpu=1, memory=2_000), "a"))
    [tried] = report.pods
    assert not report.fits
    assert (tried.fits, tried.fitting, tried.total) == (False, 2, 2)
    assert report.is_undecided()


async def test_claims_leave_nothing_undecided_where_no_card_fits(fit: Fitting) -> None:
    report = await fit(with_claims(pod(gpu=1, memory=99_000), "a"))
    assert not report.is_undecided()


async def test_pod_without_resource_claims_has_no_sentence_about_them(fit: Fitting) -> None:
    report = await fit(pod(gpu=1, memory=2_000))
    assert report.fits
    assert report.pods[0].untried() == ""


async def test_sentence_names_four_claims_and_counts_the_others(fit: Fitting) -> None:
    report = await fit(with_claims(pod(), *"abcdef"))
    assert "(a, b, c, d and 2 more)" in report.pods[0].untried()
