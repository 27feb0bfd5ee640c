"""Quotas and cards on a screen, the fullest first."""

import msgspec
import pytest

from gpuledger.cli.tables.display_texts import columns_of
from gpuledger.cli.tables.top_lines import top_lines
from gpuledger.cli.tables.top_screen import bar_text, pressure, screen, state_of


class Quota(msgspec.Struct, frozen=True):
    """A line of a quota."""

    quota: str
    used: int
    limit: int
    cluster: str = "local"
    namespace: str = "team-a"
    resource: str = "limits.nvidia.com/gpumem"


class Card(msgspec.Struct, frozen=True):
    """A card."""

    node: str
    used_memory: int
    memory: int = 10
    cluster: str = "local"
    uuid: str = "GPU-1"
    index: int = 0
    cores: int = 100
    used_cores: int = 30
    slots: int = 10
    used_slots: int = 1


def lines(quotas: int, cards: int, width: int = 80, height: int = 24) -> list[str]:
    """Return the screen of a cluster."""
    state = state_of(
        7,
        8,
        [Quota(f"q{at}", at, quotas) for at in range(quotas)],
        [Card(f"n{at}", at, cards) for at in range(cards)],
    )
    return screen(state, width, height).plain.splitlines()


def test_the_fullest_come_first() -> None:
    shown = lines(3, 3)
    assert [line.split()[1] for line in shown[2:5]] == ["q2", "q1", "q0"]
    assert [line.split()[0] for line in shown[-3:]] == ["n2", "n1", "n0"]


@pytest.mark.parametrize("sizes", [(0, 0), (3, 3), (1_000, 1_000), (1_000, 0), (0, 1_000), (2, 30)])
@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 50), (80, 10)])
def test_a_screen_is_never_larger_than_the_terminal(
    sizes: tuple[int, int], width: int, height: int
) -> None:
    shown = lines(*sizes, width, height)
    assert len(shown) <= height
    assert max(map(columns_of, shown)) <= width


def test_what_has_no_room_is_counted() -> None:
    shown = lines(100, 100)
    assert sum("more, with more room." in line for line in shown) == 2
    missing = [int(line.split()[0]) for line in shown if "more, with" in line]
    rows = sum(line.split()[0][0] in "nt" for line in shown[1:] if line)
    assert rows + sum(missing) == 200


def test_a_name_does_not_control_the_terminal() -> None:
    state = state_of(1, 1, [Quota("\x1b[2J\u202e" + "x" * 253, 1, 2)], [])
    shown = screen(state, 80, 24).plain
    assert "\x1b" not in shown
    assert "\u202e" not in shown


@pytest.mark.parametrize(
    ("used", "limit", "text"),
    [
        (0, 10, "..........    0%"),
        (4, 10, "####......   40%"),
        (10, 10, "##########  100%"),
        (4, 3, "##########  133%"),
        (0, 0, "##########  100%"),
        (1 << 53, 1, "########## >999%"),
    ],
)
def test_a_bar_shows_the_used_part(used: int, limit: int, text: str) -> None:
    assert bar_text(used, limit) == text


def test_a_card_has_a_line_for_each_resource() -> None:
    state = state_of(1, 1, [Quota("q", 1, 2)], [Card("n", 5)])
    assert [
        (line.kind, line.node, line.name, line.resource, line.used, line.limit)
        for line in top_lines(state)
    ] == [
        ("quota", "", "q", "limits.nvidia.com/gpumem", 1, 2),
        ("card", "n", "GPU-1", "memory", 5, 10),
        ("card", "n", "GPU-1", "cores", 30, 100),
        ("card", "n", "GPU-1", "slots", 1, 10),
    ]


def test_a_blocked_resource_with_use_comes_before_a_full_one() -> None:
    assert pressure(1, 0) > pressure(10, 10)
