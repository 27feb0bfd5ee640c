"""The facts of a denial, read back from its text alone."""

import re
from typing import NamedTuple

from ledger.core.model.amounts import Amounts

GPU, MEMORY, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"
UNITS = {"MiB": MEMORY, "GPU": GPU, "GPUs": GPU, "% of a card's cores": CORES}
NOUNS = {"GPU memory": MEMORY, "GPUs": GPU, "GPU cores": CORES}

TIMES = "\N{MULTIPLICATION SIGN}"
LINE = re.compile(
    r"(?:namespace (?P<namespace>\S+)|It also|It is also|shared quota \"(?P<shared>[^\"]+)\""
    r" \(UniverseResourceQuota\)) (?:has (?P<lack>no|too few|too little)|(?P<never>(?:is )?not"
    r" allowed|does not allow) that (?:much|many)) (?P<noun>GPU memory|GPU cores|GPUs)(?: left)?:"
    r" (?P<who>[^,]+?) would need (?P<total>\d+) (?P<unit>MiB|GPUs?|% of a card's cores)"
    rf"(?: \((?P<pods>\d+) pods {TIMES} (?P<each>\d+)\))?,"
    r' (?:the quota|quota "(?P<quota>[^"]+)") allows (?P<limit>\d+),'
    r" (?:(?P<used>\d+) (?:is|are)|nothing is) used(?:, (?P<own>\d+) of them by [^.]+"
    r"(?:\.apps\S+|\.batch\S+)?)?\."
)
AMOUNT = re.compile(r"(\d+) (MiB|GPUs?|% of a card's cores)|no (GPU memory|GPU cores|GPUs)")
PODS = re.compile(r"at most (\d+)(?: (?:replicas?|pods?)(?: at once)?| now$)")


class Line(NamedTuple):
    """A sentence about one line; `own` is 0 where the text has none."""

    resource: str
    quota: str
    is_universe: bool
    lack: str
    total: int
    product: int | None
    limit: int
    used: int
    own: int


class Advice(NamedTuple):
    """The advice of a text about amounts that fit; None and empty where it gives none.

    `now` and `ever` are amounts by short resource, `pods_now` and `pods_ever` numbers of pods;
    `single` is whether the amounts are those of one pod, `held_back` that the object was larger.
    """

    never: bool
    released: Amounts
    pods_now: int | None = None
    pods_ever: int | None = None
    now: Amounts | None = None
    ever: Amounts | None = None
    single: bool = False
    held_back: bool = False


def lines_of(text: str) -> list[Line]:
    """Return the lines that a text names."""
    lines: list[Line] = []
    shared = ""
    for match in LINE.finditer(text):
        if not lines:
            shared = match["shared"] or ""
        lines.append(_line(match, match["shared"] or shared))
    return lines


def _line(match: re.Match[str], shared: str) -> Line:
    assert NOUNS[match["noun"]] == UNITS[match["unit"]], match[0]
    pods = match["pods"]
    return Line(
        NOUNS[match["noun"]],
        match["quota"] or shared,
        match["quota"] is None,
        match["lack"] or "",
        int(match["total"]),
        int(pods) * int(match["each"]) if pods else None,
        int(match["limit"]),
        int(match["used"] or 0),
        int(match["own"] or 0),
    )


def advice_of(text: str) -> Advice:
    """Return the advice of a text."""
    never = re.search(
        r"It can never fit(, not even 1 (?:replica|pod))?: (?:1 (?:replica|pod) needs [^.]*?, )?"
        r"((?:at most|no) [^.]*)\.",
        text,
    )
    if never is None:
        return _later(text)
    told = re.sub(r" for [A-Z]\S* \S+$", "", never[2])
    single = never[1] is not None
    alone, among, now = told.partition(" if nothing else is used, ")
    if among:
        advice = _now(now if now == "nothing is free now" else f"at most {now}")
        return _ever(alone)._replace(pods_now=advice.pods_now, now=advice.now, single=single)
    if told.endswith(" now"):
        return _now(told)._replace(never=True, single=single)
    return _ever(told)._replace(single=single)


def _later(text: str) -> Advice:
    if "make that smaller first." in text:
        return Advice(False, {}, held_back=True)
    later = re.search(
        r"Try again when (?:(.*?) (?:is|are) released(?: by others)?|others have ended): ([^.]*)\.",
        text,
    )
    assert later is not None, text
    return _now(later[2])._replace(released=_amounts(later[1]) if later[1] else {})


def _now(told: str) -> Advice:
    told = re.sub(r" for [A-Z]\S* \S+$", "", told)
    if re.match(r"no (replica|pod) fits now", told) or told == "at most none now":
        return Advice(False, {}, pods_now=0)
    if told == "nothing is free now":
        return Advice(False, {}, now={})
    pods = PODS.match(told)
    if pods:
        return Advice(False, {}, pods_now=int(pods[1]))
    assert re.fullmatch("at most .* now", told), told
    return Advice(False, {}, now=_amounts(told))


def _ever(told: str) -> Advice:
    if told.endswith(" can be had"):
        return Advice(True, {}, ever={})
    pods = PODS.match(told)
    if pods:
        return Advice(True, {}, pods_ever=int(pods[1]))
    return Advice(True, {}, ever=_amounts(told))


def _amounts(told: str) -> Amounts:
    amounts: Amounts = {}
    for amount, unit, noun in AMOUNT.findall(told):
        amounts[UNITS[unit] if unit else NOUNS[noun]] = int(amount or 0)
    assert amounts, told
    return amounts
