"""MIG cards: an A100 with its instance profiles, as nodes announce it."""

from typing import Any, Final

A100_PROFILES: Final = [
    {
        "name": name,
        "memoryMB": memory,
        "core": core,
        "sliceCount": slices,
        "placements": [{"start": start, "size": size} for start in starts],
    }
    for name, memory, core, slices, size, starts in (
        ("1g.5gb", 4_864, 14, 1, 1, range(7)),
        ("2g.10gb", 9_856, 28, 2, 2, (0, 2, 4)),
        ("3g.20gb", 19_968, 42, 3, 4, (0, 4)),
    )
]


def mig(**fields: Any) -> dict[str, Any]:
    """Return an A100 in MIG mode with other values for some fields."""
    card = {"mode": "mig", "devmem": 40_960, "count": 7, "type": "NVIDIA A100-SXM4-40GB"}
    return {**card, "migProfiles": A100_PROFILES, **fields}
