"""Hostile names: a log in which every name that the log's model lets through attacks a page.

The API server permits most of them nowhere. But the model and the log store any text, and users,
types of cards and denied values are free text. Each script would set `window.attacked`.
"""

from typing import Final

from support.page_data.day_workloads import GPU, MEMORY, Pods, PodShape, Root
from support.page_data.decided_day import HOUR, DecidedDay
from support.page_data.working_day import DayLog

from ledger.core.model import accounts, commands
from ledger.core.model.cards import OWN, Card

SCRIPT: Final = "<script>window.attacked=1</script>"
IMAGE: Final = "<img src=x onerror=window.attacked=2>"
ATTRIBUTE: Final = "\" autofocus onfocus=window.attacked=3 x='"
TEMPLATE: Final = "{{7*7}}{% raw %}${7*7}"
LINK: Final = "javascript:window.attacked=4"
BIDI: Final = "safe\u202egnp.exe\u2066\u200f\u200b"
LONG: Final = "l" * 253
QUERY: Final = "a?b=c&d#e%2f;+ "
CLOSING: Final = "</title></style></svg>--><svg onload=window.attacked=5>"

NAMES: Final = (SCRIPT, IMAGE, ATTRIBUTE, TEMPLATE, LINK, BIDI, LONG, QUERY, CLOSING)
"""Names of pods, users, cards and containers."""

NAMESPACES: Final = tuple(name.replace("/", "\\") for name in NAMES)
"""The same as names of namespaces, quotas and nodes, which have no slash."""

CLUSTER: Final = "east"


def hostile_day(end: int) -> DayLog:
    """Return the log of some hours in which only hostile names occur; it ends at `end`."""
    day = DecidedDay(end - 3 * HOUR)
    for number, (name, space) in enumerate(zip(NAMES, NAMESPACES, strict=True)):
        day.at(number * 0.2, _attack, day, name, space)
    day.at(2.9, _share, day)
    day.run()
    return DayLog(day.payloads, day.denials)


def _attack(day: DecidedDay, name: str, space: str) -> None:
    """Use a name for everything in a namespace of this name."""
    namespace, node = f"{CLUSTER}/{space}", f"{CLUSTER}/{space}"
    account = accounts.quota(CLUSTER, space, space)
    keys = {f"limits.{MEMORY}": 20_000, f"requests.{GPU}": 3}
    day.do(commands.Describe(namespace, f"!name={space.replace(',', '')}", name))
    day.do(commands.SetLimits(account, (namespace,), keys, name, day.number()))
    card = Card(f"GPU-{name}", 0, name, 40_000, 100, 10)
    day.do(commands.RegisterCards(node, OWN, (card,), name, day.number()))
    shape = PodShape((node,), 4_000, 10)
    root = Root(day, namespace, name, shape, name, kind="Deployment")
    root.scale(2)
    alone = Pods(day, namespace, shape, name)
    alone.create(f"{name}-alone", container=name)
    alone.create(f"{name}-denied")
    Pods(day, namespace, PodShape((node,), 50_000), name).create(f"{name}-denied")
    stray = (namespace, f"pods/{name}-stray", f"uid-{name}", day.number())
    day.do(commands.Observe(*stray, {GPU: 1, MEMORY: 1_000}, name))


def _share(day: DecidedDay) -> None:
    covers = tuple(f"{CLUSTER}/{space}" for space in NAMESPACES)
    for space in NAMESPACES:
        keys = {f"limits.{MEMORY}": 400_000}
        day.do(commands.SetLimits(accounts.universe(space), covers, keys, space, day.number()))
