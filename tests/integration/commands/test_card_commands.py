"""Cards and their resizing as users of the command line meet them."""

from pathlib import Path

import pytest
from support.harness.command_line import gpuledger

from gpuledger.storage.open_log import open_log, writer_on
from ledger.core.model import commands
from ledger.core.model.amounts import Amounts
from ledger.core.model.cards import OWN, Card, Part, Phase, Share
from ledger.log.ledger_port import Accepted
from ledger.runtime.settings.settings import Settings

pytestmark = pytest.mark.integration

GPU, MEMORY, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"
POD = ("local/team-a", "pods/web-0", "u-0")
PARTS = (
    Part("proxy", Phase.SIDECAR, (Share("GPU-a", 1_000, 5),)),
    Part("main", Phase.APP, (Share("GPU-a", 8_000, 30), Share("GPU-b", 8_000, 30))),
)
DEMAND = {GPU: 3, MEMORY: 17_000, CORES: 65}
SCALED = Card("GPU-c", 0, "T4", 15_000, 100, 10, memory_scale=150)
RESIZE = ("resize", "-n", "team-a", "web-0", "-c", "main")

STEPS: list[commands.AnyCommand] = [
    commands.SetLimits("quota/local/team-a/gpus", ("local/team-a",), {f"limits.{MEMORY}": 30_000}),
    commands.RegisterCards(
        "local/n1",
        OWN,
        tuple(Card(f"GPU-{name}", at, "A100", 20_000, 100, 10) for at, name in enumerate("ab")),
    ),
    commands.RegisterCards("local/n2", OWN, (SCALED,)),
    commands.Reserve(*POD, DEMAND),
    commands.Place(*POD, "local/n1", PARTS),
]


@pytest.fixture
async def store(tmp_path: Path) -> Path:
    """A ledger in which one pod has two of three cards."""
    settings = Settings(store_dir=str(tmp_path / "store"))
    async with open_log(settings, create=True) as opened, writer_on(settings, opened) as writer:
        for step in STEPS:
            assert isinstance(await writer.submit(step), Accepted)
    return tmp_path / "store"


def charge_of(store: Path) -> Amounts:
    (pod,) = gpuledger("holders", "-o", "json", store=store).json
    amounts: Amounts = pod["amounts"]
    return amounts


def used_of(store: Path, *arguments: str) -> dict[str, tuple[int, int, int]]:
    rows = gpuledger("cards", "-o", "json", *arguments, store=store).json
    return {row["uuid"]: (row["used_memory"], row["used_cores"], row["used_slots"]) for row in rows}


def test_cards_are_shown_with_what_is_used_of_them(store: Path) -> None:
    assert used_of(store) == {
        "GPU-a": (9_000, 35, 2),
        "GPU-b": (8_000, 30, 1),
        "GPU-c": (0, 0, 0),
    }
    (card,) = gpuledger("cards", "n2", "-o", "json", store=store).json
    wanted = ("node", "uuid", "index", "type", "health", "memory", "cores", "slots")
    assert [card[name] for name in wanted] == ["n2", "GPU-c", 0, "T4", True, 15_000, 100, 10]
    table = gpuledger("cards", store=store).out.splitlines()
    assert table[1].split() == ["n1", "0", "A100", "ok", "9000/20000Mi", "35/100%", "2/10"]
    wide = gpuledger("cards", "-o", "wide", store=store).out.splitlines()
    assert wide[1].split()[:9] == [
        *("local", "n1", "0", "GPU-a", "A100", "ok", "9000/20000", "35/100", "2/10")
    ]
    assert [line.split()[9] for line in wide[1:]] == ["-", "-", "memory=150%"]


def test_who_is_on_cards_is_shown_line_by_line(store: Path) -> None:
    table = gpuledger("cards", "--pods", store=store)
    rows = [line.split() for line in table.out.splitlines()[1:]]
    assert [row[:5] for row in rows] == [
        ["n1", "0", "team-a", "pods/web-0", "9000Mi"],
        ["n1", "1", "team-a", "pods/web-0", "8000Mi"],
        ["n2", "0", "-", "-", "0Mi"],
    ]
    (card,) = gpuledger("cards", "n2", "--pods", "-o", "json", store=store).json
    assert card["pods"] == []


def test_cards_as_of_a_position(store: Path) -> None:
    assert used_of(store, "n1", "--at", "2") == {"GPU-a": (0, 0, 0), "GPU-b": (0, 0, 0)}
    assert used_of(store, "--at", "1") == {}


def test_a_node_without_cards_passes(store: Path) -> None:
    shown = gpuledger("cards", "n9", store=store)
    assert (shown.status, shown.out) == (0, "")
    assert "No cards of node n9 found." in shown.err


def test_usage_of_quotas_contains_no_cards(store: Path) -> None:
    (line,) = gpuledger("usage", "-o", "json", store=store).json
    assert (line["quota"], line["used"]) == ("gpus", 17_000)
    (limit,) = gpuledger("quota", "list", "-o", "json", store=store).json
    assert limit["quota"] == "gpus"


def test_history_shows_where_a_pod_was_placed(store: Path) -> None:
    events = gpuledger("history", "-n", "team-a", "-o", "json", store=store).json
    assert events[-1]["note"].startswith("placed on node n1: proxy on card GPU-a 1000 MiB 5 %")


def test_a_resize_changes_the_cards_and_what_the_pod_is_charged(store: Path) -> None:
    done = gpuledger(*RESIZE, "--memory", "12000", "--cores", "40", "-o", "json", store=store).json
    assert done["changed"]
    wanted = ("node", "uuid", "memory_before", "memory")
    assert [tuple(card[name] for name in wanted) for card in done["cards"]] == [
        ("n1", "GPU-a", 8_000, 12_000),
        ("n1", "GPU-b", 8_000, 12_000),
    ]
    assert charge_of(store) == {GPU: 3, MEMORY: 25_000, CORES: 85}
    assert used_of(store, "n1") == {"GPU-a": (13_000, 45, 2), "GPU-b": (12_000, 40, 1)}


def test_a_dry_run_changes_nothing(store: Path) -> None:
    done = gpuledger(*RESIZE, "--memory", "12000", "--dry-run", store=store)
    assert done.status == 0
    assert done.out.splitlines()[1].split()[3:5] == ["8000", "12000"]
    assert "nothing was changed" in done.err
    assert charge_of(store) == DEMAND


@pytest.mark.parametrize("dry_run", [("--dry-run",), ()])
def test_what_does_not_fit_is_denied_and_changes_nothing(
    store: Path, dry_run: tuple[str, ...]
) -> None:
    denied = gpuledger(*RESIZE, "--memory", "14600", *dry_run, store=store)
    assert (denied.status, denied.out) == (4, "")
    assert 'too little GPU memory left: Pod web-0 would need 30200 MiB, quota "gpus"' in denied.err
    assert "[ResourceQuotaNotFit; decision " in denied.err
    assert charge_of(store) == DEMAND


def test_a_card_without_room_denies_a_resize(store: Path) -> None:
    denied = gpuledger(*RESIZE, "--cores", "96", store=store)
    assert denied.status == 4
    assert "card GPU-a of node n1 has too few cores left: Pod web-0 would need" in denied.err
    assert "[CardInsufficientCore; decision " in denied.err


@pytest.mark.parametrize(
    ("option", "amount", "advice"),
    [
        # The quota allows 13,000 more on the two cards; 1,000 of card a are the proxy's.
        ("--memory", "14501", "Ask for at most 14500 MiB now"),
        ("--memory", "99999", "It can never fit: at most 14500 MiB now"),
        ("--cores", "96", "It can never fit: at most 95 % of the cores now"),
    ],
)
def test_a_denied_resize_reports_how_much_fits_card_and_quota(
    store: Path, option: str, amount: str, advice: str
) -> None:
    denied = gpuledger(*RESIZE, option, amount, "--dry-run", store=store)
    assert (denied.status, "Another card" in denied.err) == (4, False)
    assert advice in denied.err
    most = advice.split("at most ")[1].split()[0]
    assert gpuledger(*RESIZE, option, most, "--dry-run", store=store).status == 0


def test_a_resize_that_fits_in_neither_amount_names_both(store: Path) -> None:
    denied = gpuledger(*RESIZE, "--memory", "30000", "--cores", "200", store=store)
    memory = "It can never fit: at most 14500 MiB now"
    assert f"{memory}, and at most 95 % of the cores now" in denied.err


async def test_a_denied_resize_reports_amounts_that_fit_now_and_on_a_free_card(
    store: Path,
) -> None:
    other = ("local/team-b", "pods/other", "u-1")
    parts = (Part("main", Phase.APP, (Share("GPU-b", 7_000, 0),)),)
    small = (Part("main", Phase.APP, (Share("GPU-b", 1_000, 0),)),)
    pod = ("local/team-c", "pods/small", "u-2")
    settings = Settings(store_dir=str(store))
    async with open_log(settings) as opened, writer_on(settings, opened) as writer:
        for step in (
            commands.Reserve(*other, {GPU: 1, MEMORY: 7_000}),
            commands.Place(*other, "local/n1", parts),
            commands.Reserve(*pod, {GPU: 1, MEMORY: 1_000}),
            commands.Place(*pod, "local/n1", small),
        ):
            assert isinstance(await writer.submit(step), Accepted)
    resize = ("resize", "-n", "team-c", "small", "-c", "main", "--memory")
    denied = gpuledger(*resize, "6000", store=store)
    assert "Ask for at most 5000 MiB now, 20000 MiB if no other pod is on the card" in denied.err
    never = gpuledger(*resize, "25000", store=store)
    wanted = (
        "It can never fit: at most 20000 MiB if no other pod is on the card, 5000 MiB in all now"
    )
    assert wanted in never.err
    full = gpuledger(*resize, "5000", "-o", "json", store=store).json
    assert full["changed"]
    again = gpuledger(*resize, "5001", store=store)
    assert "Ask for no more than its 5000 MiB now, 20000 MiB if no other pod" in again.err


async def test_a_pod_that_named_a_type_of_cards_is_charged_as_that_too(store: Path) -> None:
    typed, share = f"v100.{MEMORY}", Share("GPU-c", 1_000, 0)
    pod = ("local/team-b", "pods/typed", "u-1")
    steps: list[commands.AnyCommand] = [
        commands.Reserve(*pod, {GPU: 1, f"v100.{GPU}": 1, MEMORY: 1_000, typed: 1_000}),
        commands.Place(*pod, "local/n2", (Part("main", Phase.APP, (share,)),)),
    ]
    settings = Settings(store_dir=str(store))
    async with open_log(settings) as opened, writer_on(settings, opened) as writer:
        for step in steps:
            assert isinstance(await writer.submit(step), Accepted)
    asked = ("resize", "-n", "team-b", "typed", "-c", "main", "--memory", "2000")
    assert gpuledger(*asked, "--gpu-types", "v100", store=store).status == 0
    (holder,) = gpuledger("holders", "-n", "team-b", "-o", "json", store=store).json
    assert holder["amounts"] == {GPU: 1, f"v100.{GPU}": 1, MEMORY: 2_000, typed: 2_000}


def test_who_has_no_card_is_not_found(store: Path) -> None:
    asked = ("resize", "-n", "team-a", "--memory", "1")
    missing = gpuledger(*asked, "web-0", "-c", "sidecar", store=store)
    assert missing.status == 3
    assert "those that have: proxy, main" in missing.err
    unknown = gpuledger(*asked, "web-1", "-c", "main", store=store)
    assert unknown.status == 3
    assert "pod web-1 of namespace team-a in cluster local has no card" in unknown.err


def test_a_resize_to_nothing_else_is_wrong_usage(store: Path) -> None:
    assert gpuledger(*RESIZE, store=store).status == 2
