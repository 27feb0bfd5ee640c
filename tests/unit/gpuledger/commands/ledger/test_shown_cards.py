"""The columns of `gpuledger cards` for the mechanism that offers a card."""

import json
from typing import Any

import pytest

from gpuledger.cli.output import Format, show_rows
from gpuledger.commands.ledger import cards
from projections.queries.card_usage import DEVICE_PLUGIN, DRA, CardUsage

ZERO = dict.fromkeys(
    ("used_memory", "used_cores", "used_slots", "free_memory", "free_cores", "free_slots"), 0
)


def card(index: int, **more: Any) -> CardUsage:
    fields: dict[str, Any] = {
        "cluster": "c1",
        "node": "n1",
        "uuid": f"GPU-{index}",
        "index": index,
        "type": "H100",
        "health": True,
        "memory": 8_000,
        "cores": 100,
        "slots": 10,
        **ZERO,
        "vendor": "nvidia",
        "mode": "",
        "numa": 0,
        "cordoned": False,
        "memory_scale": 100,
        "cores_scale": 100,
        "keeper": "gpuledger",
        "state": "announced",
    }
    return CardUsage(**fields | more)


OFFERED = card(0, offered_by=DRA, driver="gpu.nvidia.com")
OTHER = card(1, offered_by=DEVICE_PLUGIN, driver="")
LOST = card(2, offered_by="", driver="", state="lost")


def shown(capsys: pytest.CaptureFixture[str], output: Format, *rows: CardUsage) -> list[str]:
    show_rows(rows, cards._CARDS, output, "nothing")
    return capsys.readouterr().out.splitlines()


def test_the_table_marks_cards_in_slices(capsys: pytest.CaptureFixture[str]) -> None:
    header, *lines = shown(capsys, Format.TABLE, OFFERED, OTHER, LOST)
    at = header.split().index("OFFERED")
    assert [line.split()[at] for line in lines] == ["dra", "-", "-"]


@pytest.mark.parametrize("rows", [[OTHER, LOST], [card(0)]])
def test_the_table_has_no_such_column_without_slices(
    capsys: pytest.CaptureFixture[str], rows: list[CardUsage]
) -> None:
    assert "OFFERED" not in shown(capsys, Format.TABLE, *rows)[0]


def test_wide_tables_and_csv_end_with_mechanism_and_driver(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = (OFFERED, OTHER, LOST, card(3))
    expected = ["dra gpu.nvidia.com", "device-plugin -", "- -", "- -"]
    header, *lines = shown(capsys, Format.WIDE, *rows)
    assert header.split()[-3:] == ["KEEPER", "OFFERED", "DRIVER"]
    assert [" ".join(line.split()[-2:]) for line in lines] == expected
    header, *lines = shown(capsys, Format.CSV, *rows)
    assert header.split(",")[-3:] == ["keeper", "offered", "driver"]
    assert [" ".join(cell or "-" for cell in line.split(",")[-2:]) for line in lines] == expected


def test_json_leaves_out_what_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    first, second, third = json.loads("".join(shown(capsys, Format.JSON, OFFERED, LOST, card(3))))
    assert (first["offered_by"], first["driver"]) == ("dra", "gpu.nvidia.com")
    assert (second["offered_by"], second["driver"]) == ("", "")
    assert third.keys().isdisjoint({"offered_by", "driver"})
