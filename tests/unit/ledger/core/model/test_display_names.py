"""The whole text of a denial, for one case of each form."""

import msgspec
import pytest
from support.builders.quota_commands import tell

from ledger.core.decide import no_room_denial
from ledger.core.model import accounts
from ledger.core.model.amounts import Amounts
from ledger.core.model.commands import Asker, Observe, Reserve, SetLimits
from ledger.core.model.denials import Denial, brief, sentence
from ledger.core.model.state import State
from ledger.core.model.traits import Requirement

GPU, MEMORY, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"
TEAM = "c1/team-a"
TIMES = "\N{MULTIPLICATION SIGN}"


def limited(limits: dict[str, int], account: str = "", covers: tuple[str, ...] = (TEAM,)) -> State:
    state = State()
    tell(state, SetLimits(account or accounts.quota("c1", "team-a", "gpus"), covers, limits))
    return state


def ask(
    state: State, key: str, demand: Amounts, *, asker: Asker | None = None, **more
) -> Denial | None:
    """Ask for an object that is stored when it is let in; return why it is not."""
    namespace = more.pop("namespace", TEAM)
    command = Reserve(namespace, key, f"uid-{key}", demand, asker=asker or Asker(), **more)
    decision = tell(state, command)
    if isinstance(decision, Denial):
        return msgspec.structs.replace(decision, decision="96bebd56-0")
    tell(state, Observe(namespace, key, f"uid-{key}", 5, demand))
    return None


def refused(decision: object) -> Denial:
    assert isinstance(decision, Denial), decision
    return decision


def text(denial: Denial | None) -> str:
    assert denial is not None
    return sentence(denial)


def deployment(replicas: int) -> Asker:
    return Asker("Deployment", replicas, replicas=True)


def test_denial_of_a_scale_names_the_possible_replicas() -> None:
    state, web = limited({f"limits.{MEMORY}": 16_000}), "deployments.apps/web"
    ask(state, web, {MEMORY: 16_000}, asker=deployment(2))
    denial = ask(state, web, {MEMORY: 24_000}, asker=deployment(3), base=5)
    assert text(denial) == (
        "namespace team-a has no GPU memory left: Deployment web would need 24000 MiB"
        f' (3 pods {TIMES} 8000), quota "gpus" allows 16000, 16000 are used. It can never fit:'
        " at most 2 replicas. Used by: deployments.apps/web 16000."
        " [ExceedsLimit; decision 96bebd56-0]"
    )


def test_denial_names_every_short_resource() -> None:
    state = limited({f"limits.{MEMORY}": 16_000, f"requests.{GPU}": 2})
    for name in ("p1", "p2"):
        ask(state, f"pods/{name}", {MEMORY: 8_000, GPU: 1})
    denial = ask(state, "pods/p3", {MEMORY: 8_000, GPU: 1})
    assert text(denial) == (
        "namespace team-a has no GPU memory left: Pod p3 would need 8000 MiB, quota"
        ' "gpus" allows 16000, 16000 are used. It also has no GPUs left: Pod p3 would need 1 GPU,'
        ' quota "gpus" allows 2, 2 are used. Try again when 8000 MiB and 1 GPU are released:'
        " nothing is free now. Used by: pods/p1 8000 MiB, pods/p2 8000 MiB."
        " [QuotaExceeded; decision 96bebd56-0]"
    )
    assert denial is not None
    assert [shortage.reason for shortage in denial.shortages] == ["QuotaExceeded"] * 2
    assert brief(denial) == (
        "namespace team-a has no GPU memory left: Pod p3 would need 8000 MiB, quota"
        ' "gpus" allows 16000, 16000 are used. It also has no GPUs left. Try again when 8000 MiB'
        " and 1 GPU are released: nothing is free now. [QuotaExceeded; decision 96bebd56-0]"
    )
    assert "Try again" not in brief(denial, overruled=True)


def test_denial_that_never_fits_names_amounts_that_fit_now_and_alone() -> None:
    state = limited({f"limits.{MEMORY}": 16_000, f"requests.{GPU}": 2})
    ask(state, "pods/p1", {MEMORY: 8_000, GPU: 2})
    denial = ask(state, "pods/p3", {MEMORY: 18_000, GPU: 3})
    assert (
        "It can never fit: at most 16000 MiB in total and 2 GPUs if nothing else is used, 8000 MiB"
        " in total and no GPUs now." in text(denial)
    )


def test_of_many_holders_the_largest_are_named_and_the_others_counted() -> None:
    state = limited({f"requests.{GPU}": 60})
    ask(state, "jobs.batch/train", {GPU: 10})
    for number in range(50):
        ask(state, f"pods/w{number:02}", {GPU: 1})
    assert text(ask(state, "jobs.batch/etl", {GPU: 6}, asker=Asker("Job", 6))) == (
        f"namespace team-a has no GPUs left: Job etl would need 6 GPUs (6 pods {TIMES} 1), quota"
        ' "gpus" allows 60, 60 are used. Try again when 6 GPUs are released: no pod fits now.'
        " Used by: jobs.batch/train 10, pods/w00 1, pods/w01 1 and 48 more objects."
        " [QuotaExceeded; decision 96bebd56-0]"
    )


def test_denial_names_the_part_that_the_object_itself_uses() -> None:
    state, web = limited({f"requests.{GPU}": 6}), "deployments.apps/web"
    ask(state, web, {GPU: 4}, asker=deployment(4))
    ask(state, "pods/x", {GPU: 1})
    assert text(ask(state, web, {GPU: 6}, asker=deployment(6), base=5)) == (
        f"namespace team-a has too few GPUs left: Deployment web would need 6 GPUs (6 pods {TIMES}"
        ' 1), quota "gpus" allows 6, 5 are used, 4 of them by Deployment web. Try again when 1'
        " GPU is released by others: at most 5 replicas now. Used by: deployments.apps/web 4,"
        " pods/x 1. [QuotaExceeded; decision 96bebd56-0]"
    )


def test_a_shared_quota_is_named_as_such_and_its_namespaces_by_their_share() -> None:
    state = limited({f"limits.{MEMORY}": 160_000}, accounts.universe("research"), (TEAM, "c2/b"))
    ask(state, "pods/x", {MEMORY: 64_000}, namespace="c2/b")
    ask(state, "deployments.apps/asr", {MEMORY: 48_000})
    tts = ("deployments.apps/tts", {MEMORY: 64_000})
    told = text(ask(state, *tts, asker=deployment(4)))
    assert told.startswith(
        'shared quota "research" (UniverseResourceQuota) has too little GPU memory left: Deployment'
        f" tts of namespace team-a would need 64000 MiB (4 pods {TIMES} 16000), the quota allows"
        " 160000, 112000 are used. Try again when 16000 MiB are released: "
    )
    assert "at most 3 replicas now. Used by: c2/b 64000, deployments.apps/asr 48000." in told
    assert "c2/b" not in text(ask(state, *tts, asker=deployment(4), own_holders=True))


@pytest.mark.parametrize(
    ("limit", "asker", "advice"),
    [
        (
            16_000,
            deployment(3),
            "It can never fit, not even 1 replica: 1 replica needs 20000 MiB, at most 16000 MiB are"
            " allowed.",
        ),
        (16_000, deployment(1), "It can never fit: at most 16000 MiB."),
        (0, Asker(), "It can never fit: no GPU memory can be had."),
        (45_000, Asker("Job", 3), "It can never fit: at most 2 pods at once."),
        (45_000, Asker("PyTorchJob"), "It can never fit: at most 45000 MiB."),
    ],
)
def test_denial_never_advises_an_amount_of_zero(limit: int, asker: Asker, advice: str) -> None:
    state = limited({f"limits.{MEMORY}": limit})
    assert advice in text(ask(state, "deployments.apps/web", {MEMORY: 60_000}, asker=asker))


def test_denial_names_no_number_of_pods_that_differs_from_the_total() -> None:
    state = limited({f"requests.{GPU}": 2})
    told = text(ask(state, "deployments.apps/web", {GPU: 4}, asker=deployment(3)))
    assert "Deployment web would need 4 GPUs, quota" in told
    assert "It can never fit: at most 2 GPUs." in told


def test_other_resources_go_by_names_and_units_of_their_own() -> None:
    typed, other = f"v100.{GPU}", "example.com/fpga"
    limits = {f"requests.{typed}": 1, f"limits.{CORES}": 50, f"limits.{other}": 1, "limits.cpu": 9}
    demand = {typed: 2, CORES: 60, other: 2, "limits.cpu": 10}
    told = text(ask(limited(limits), "pods/p", demand))
    for line in (
        "not allowed that many GPUs of type v100: Pod p would need 2 GPUs of type v100, quota",
        "not allowed that many GPU cores: Pod p would need 60 % of a card's cores, quota",
        "not allowed that much example.com/fpga: Pod p would need 2, quota",
        "not allowed that much CPU (limits.cpu): Pod p would need 10 millicores, quota",
    ):
        assert line in told


def test_amounts_of_several_types_have_different_names() -> None:
    typed = f"v100.{MEMORY}"
    limits = {f"limits.{MEMORY}": 16_000, f"limits.{typed}": 8_000, f"limits.v100.{CORES}": 50}
    state = limited(limits)
    ask(state, "pods/q", {MEMORY: 12_000, typed: 6_000, f"v100.{CORES}": 40})
    told = text(ask(state, "pods/p", {MEMORY: 8_000, typed: 8_000, f"v100.{CORES}": 20}))
    assert (
        "Try again when 4000 MiB, 10 % of the cores of a card of type v100 and 6000 MiB of type"
        " v100 are released: at most 4000 MiB, 10 % of the cores of a card of type v100 and 2000"
        " MiB of type v100 now." in told
    )


def test_denial_of_a_pod_names_resources_that_its_envelope_lacks() -> None:
    state, web = limited({f"limits.{MEMORY}": 100}), "deployments.apps/web"
    ask(state, web, {GPU: 1}, asker=deployment(1))
    told = text(ask(state, "pods/a", {MEMORY: 200}, root=web))
    assert f". It is beyond the envelope of {web}, which has none of that. It can" in told


def test_denial_of_an_update_onto_a_quota_explains_the_larger_need() -> None:
    """It can fit, in two steps: first smaller, then with the label."""
    state, web, selects = State(), "deployments.apps/web", (Requirement("app", "In", ("b",)),)
    account = accounts.quota("c1", "team-a", "b")
    tell(state, SetLimits(account, (TEAM,), {f"limits.{MEMORY}": 100}, selects=selects))
    tell(state, Observe(TEAM, web, "u", 5, {MEMORY: 200}, traits=("app=a",)))
    moved = Reserve(TEAM, web, "u", {MEMORY: 50}, base=5, traits=("app=b",))
    denial = refused(tell(state, moved))
    assert (denial.reason, denial.transient) == ("QuotaExceeded", True)
    assert "would need 200 MiB" in sentence(denial)
    assert "counts as what the object was: make that smaller first." in sentence(denial)
    tell(state, Observe(TEAM, web, "u", 6, {MEMORY: 50}, traits=("app=a",)))
    assert not isinstance(tell(state, msgspec.structs.replace(moved, base=6)), Denial)
    more = Reserve(TEAM, web, "u", {MEMORY: 150}, base=6, traits=("app=b",))
    assert "It can never fit: at most 100 MiB." in sentence(refused(tell(state, more)))


def test_denial_names_a_bounded_number_of_lines() -> None:
    state = State()
    for number in range(20):
        account = accounts.quota("c1", "team-a", f"q{number:02}")
        tell(state, SetLimits(account, (TEAM,), {f"requests.{GPU}": number}))
    denial = ask(state, "pods/p", {GPU: 30})
    assert denial is not None
    assert len(denial.shortages) == 20, "whoever waits has to know every account"
    assert text(denial).count(" would need ") == no_room_denial.SENTENCES_MAX
    assert "Other limits have no room either." in text(denial)


def test_denial_names_the_memory_of_several_cards_as_their_sum() -> None:
    state = limited({f"limits.{MEMORY}": 16_000})
    told = text(ask(state, "pods/p", {MEMORY: 18_000, GPU: 3}, asker=Asker("Pod", cards=3)))
    assert told == (
        f"namespace team-a is not allowed that much GPU memory: Pod p would need 18000 MiB (3 GPUs"
        f' {TIMES} 6000), quota "gpus" allows 16000, nothing is used. It can never fit: at most'
        " 16000 MiB in total. [ExceedsLimit; decision 96bebd56-0]"
    )


def test_denial_names_the_owner_of_each_limit() -> None:
    state = limited({f"requests.{GPU}": 1})
    tell(state, SetLimits(accounts.universe("all"), (TEAM,), {f"requests.{GPU}": 2}))
    ask(state, "pods/a", {GPU: 1})
    denial = ask(state, "pods/b", {GPU: 1})
    tell(state, SetLimits(accounts.universe("all"), (TEAM,), {f"requests.{GPU}": 1}))
    assert "Also" not in text(denial)
    told = text(ask(state, "pods/b", {GPU: 1}))
    assert told.startswith('shared quota "all" (UniverseResourceQuota) has no GPUs left: Pod b of')
    assert "Also, namespace team-a has no GPUs left: Pod b would need 1 GPU, quota" in told
