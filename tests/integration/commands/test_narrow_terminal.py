"""Every table on a terminal of 80 columns, with long names."""

import asyncio
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.recorded.pseudo_terminal import in_a_pipe, on_terminal

from gpuledger.cli.output import view_lines
from gpuledger.cli.tables.display_texts import ELLIPSIS, columns_of
from gpuledger.cli.tables.table_columns import Listing
from gpuledger.commands import check, import_hami, node, uninstall, vgpu
from gpuledger.commands.ledger import history_and_denials, holders_and_holds, resize
from gpuledger.storage.open_log import open_log, writer_on
from ledger.core.model import accounts, commands
from ledger.core.model.cards import OWN, Card, Part, Phase, Share
from ledger.core.model.traits import Reach, Requirement
from ledger.log.ledger_port import Accepted
from ledger.runtime.settings.settings import Settings

pytestmark = pytest.mark.integration

GPU, MEMORY, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"
NAMESPACE = "machine-learning-platform-team-a-production-environment-europe"
PLACE = f"local/{NAMESPACE}"
NODE = "gpu-node-pool-a100-7f6b5.europe-west4-a.example.internal"
POD = (PLACE, "pods/inference-server-large-language-model-v2-7d9f8c6b5-x2x9z", "u-0")
UUIDS = [f"GPU-6b1f9c0e-93a1-4c1c-a4b8-0e8f2f0c7d{number:02}" for number in range(3)]
DEMAND = {GPU: 2, MEMORY: 16_000, CORES: 60}
LIMITS = {f"limits.{MEMORY}": 300_000, f"requests.{GPU}": 10, f"limits.{CORES}": 1_000}
GOLD = Reach(namespaces=(Requirement("tier", "In", ("gold", "silver", "platinum")),))

STEPS: list[commands.AnyCommand] = [
    commands.SetLimits(f"quota/{PLACE}/gpu-quota-of-the-platform", (PLACE,), LIMITS),
    commands.SetLimits(accounts.universe("company"), (), {f"requests.{GPU}": 3}, reach=GOLD),
    commands.Describe(PLACE, f"!name={NAMESPACE},tier=gold"),
    commands.RegisterCards(
        f"local/{NODE}",
        OWN,
        tuple(
            Card(uuid, at, "NVIDIA-NVIDIA-A100-SXM4-80GB", 81_920, 100, 10)
            for at, uuid in enumerate(UUIDS)
        ),
    ),
    commands.Reserve(*POD, DEMAND, actor="system:serviceaccount:argocd:application-controller"),
    commands.Place(
        *POD,
        f"local/{NODE}",
        (Part("main", Phase.APP, tuple(Share(uuid, 8_000, 30) for uuid in UUIDS[:2])),),
    ),
    commands.Observe(PLACE, "pods/stray", "u-2", 7, {GPU: 2, MEMORY: 4_000}, "settlement"),
    commands.Reserve("local/b", f"pods/{'x' * 248}", "u-9", {GPU: 1, f"v100.{GPU}": 1, MEMORY: 8}),
    commands.Reserve("west/b", "pods/y", "u-10", {GPU: 1, "hygon.com/dcumem": 9_000}),
]
POD_MANIFEST = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "new", "namespace": NAMESPACE},
    "spec": {"containers": [{"name": "main", "resources": {"limits": {GPU: "4"}}}]},
}
TABLES: dict[str, tuple[str, ...]] = {
    "usage": ("usage",),
    "shares": ("usage", "--by", "namespace", "--quota", "company"),
    "holders": ("holders",),
    "holds": ("holds",),
    "history": ("history",),
    "cards": ("cards",),
    "pods on cards": ("cards", "--pods"),
    "drift": ("drift",),
    "quotas": ("quota", "list"),
    "replay": ("audit", "replay"),
    "what-if": ("what-if", f"--limit={NAMESPACE}/gpu-quota-of-the-platform:limits.{MEMORY}=9000"),
    "fit": ("fit", "-f", "POD"),
    "fit of cards": ("fit", "-f", "POD", "--cards"),
}


Printed = dict[str, tuple[list[str], list[str]]]


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Printed:
    """The lines of each table of a ledger whose names are long, on a terminal and in a pipe."""
    store = tmp_path_factory.mktemp("ledger") / "store"
    asyncio.run(_write(store))
    pod = store.parent / "pod.json"
    pod.write_text(json.dumps(POD_MANIFEST))
    commands = [
        [*(str(pod) if part == "POD" else part for part in table), f"--store-dir={store}"]
        for table in TABLES.values()
    ]
    outputs = zip(on_terminal(commands), in_a_pipe(commands), strict=True)
    return dict(zip(TABLES, outputs, strict=True))


async def _write(path: Path) -> None:
    settings = Settings(store_dir=str(path))
    async with open_log(settings, create=True) as opened, writer_on(settings, opened) as writer:
        for step in STEPS:
            assert isinstance(await writer.submit(step), Accepted)


def too_long(lines: Sequence[str], columns: int) -> list[str]:
    """Return the lines that a terminal would fold."""
    return [line for line in lines if columns_of(line) > columns]


def broken(lines: Sequence[str], whole: str) -> list[str]:
    """Return the words that a pipe does not get as words, or begins and ends of its words."""
    words = set(re.split(r"[\s,]+", whole))
    return [
        word
        for word in re.split(r"[\s,]+", "\n".join(lines))
        if word and word not in words and not _is_shortened(word, words)
    ]


def _is_shortened(word: str, words: set[str]) -> bool:
    head, ellipsis, tail = word.partition(ELLIPSIS)
    return bool(ellipsis) and any(
        whole.startswith(head) and whole.endswith(tail) for whole in words
    )


@pytest.mark.parametrize("table", TABLES)
def test_a_table_fits_80_columns_and_breaks_no_word(printed: Printed, table: str) -> None:
    lines, whole = printed[table]
    assert len(lines) > 1
    assert too_long(lines, 80) == []
    # Ages differ by the second.
    ages = r"\b\d+[sm](\d+s)?\b"
    words = re.sub(ages, "AGE", "\n".join(whole))
    assert broken([re.sub(ages, "AGE", line) for line in lines], words) == []


def test_a_folded_word_and_a_long_line_are_found() -> None:
    """The negative control: what a terminal made of names before."""
    assert broken(["limits./nvidia."], "limits.nvidia.com/gpumem") == ["limits./nvidia."]
    assert broken(["pods/a…z"], "pods/abcy") == ["pods/a…z"]
    assert broken(["pods/a…y x"], "pods/abcy x") == []
    assert too_long(["x" * 81, "x" * 80], 80) == ["x" * 81]


LONG = "n" * 253


class HostileRow:
    """A row each of whose texts is long, and each of whose amounts is large."""

    busy, memory_used, memory_limit, seen = 99.0, 1 << 46, 1 << 46, 1
    cores, used_cores, hami_cores, cores_before, cores_limit = (100,) * 5
    slots, used_slots, hami_slots = (100,) * 3
    memory, used_memory, hami_memory, memory_before = (9_999_999,) * 4
    action = outcome = result = "not asked"
    time = since = "2026-01-31T12:00:00Z"
    amounts = DEMAND
    place = 12
    message = detail = problem = obstacle = text = f"{LONG} and {'a word ' * 30}"
    denial = msgspec.defstruct("Denial", [("reason", str, "CardInsufficientMemory")])()

    def __getattr__(self, name: str) -> Any:
        """Return a long name for another field."""
        return LONG


@pytest.mark.parametrize(
    "listing",
    [
        history_and_denials.DENIALS,
        holders_and_holds.WAITING,
        node.COLUMNS,
        vgpu.COLUMNS,
        uninstall.THINGS,
        check.LINES,
        import_hami.CARDS,
        resize.CARDS,
    ],
)
def test_a_listing_of_a_cluster_fits_80_columns(listing: Listing) -> None:
    table = view_lines([HostileRow()], listing, 80)
    assert too_long([table.header, *table.lines], 80) == []
    assert table.left_out == []
