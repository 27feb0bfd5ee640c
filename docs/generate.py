"""Generate the reference pages, and what is shipped for schedulers, from the code.

`python docs/generate.py` writes them; with `--check` it changes nothing and exits with 1 when a
page is not what the code says. A page cannot be forgotten, because what is not described in the
code stops the generator.
"""

import argparse
import re
import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec
import typer
import yaml
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from gpuledger.cli.command_wrapper import help_of
from gpuledger.cli.exit_codes import Exit
from gpuledger.command_line import build
from ledger.core.model.denials import Reason
from ledger.kube.vendors.managed_resources import managed_resources
from ledger.kube.vendors.vendors import chosen
from ledger.runtime.metrics import METRICS
from ledger.runtime.settings.setting_texts import documentation
from ledger.runtime.settings.settings import Settings

HERE: Final = Path(__file__).parent

SCHEDULER_SETTINGS: Final = "../deploy/scheduler/settings.yaml"
"""Not a page: only its managed resources are generated."""

MANAGED_INDENT: Final = " " * 6
MANAGED: Final = re.compile(r"(?m)^      managedResources:\n(?:      (?:- |  ).*\n)*")
"""The list of managed resources with that indent."""

NOTE: Final = "<!-- Made by docs/generate.py; edit the code that it describes. -->\n"

EXITS: Final = {
    Exit.OK: "Done, or what was checked holds.",
    Exit.FAILED: "Failed, or what was checked does not hold.",
    Exit.USAGE: "The command line, a setting or an input file is wrong; nothing was done.",
    Exit.NOT_FOUND: "The ledger, quota, object or position does not exist.",
    Exit.DENIED: "The ledger refuses: the request does not fit, or is not permitted.",
    Exit.UNREACHABLE: "The log cannot be reached.",
    Exit.NOT_READY: "Not in time: another process holds the store, or the operation took too long.",
}

REASONS: Final = {
    Reason.INVALID_REVIEW: (
        "The review cannot be read or lacks a value that the decision needs.",
        "Check the sender; the message names the field.",
    ),
    Reason.UID_MISSING: (
        "A creation was sent without metadata.uid, so its outcome could not be proved.",
        "Register `/admission/validate` in a ValidatingWebhookConfiguration (`gpuledger webhook"
        " print`). An aggregated API server must set the uid before it calls webhooks, or its"
        " namespaces must be in exempt_namespaces.",
    ),
    Reason.INVALID_QUANTITY: (
        "An amount is not a valid quantity: it has a binary suffix, is negative or too large.",
        "Write a plain whole number, for card memory in MiB: `nvidia.com/gpumem: 8000`.",
    ),
    Reason.INVALID_PERCENTAGE: (
        "A percentage of a card's memory is outside 1 to 100.",
        "Give 1 to 100, or an amount of memory.",
    ),
    Reason.INVALID_CORES: (
        "A share of a card's cores is outside 0 to 100.",
        "Give 0 to 100 per card; the number of cards multiplies it.",
    ),
    Reason.INVALID_COUNT: (
        "A number of cards, or of pods of a workload, is invalid.",
        "Give a whole number; the message names the field.",
    ),
    Reason.INVALID_POLICY: (
        "An annotation that selects nodes or cards for a pod is invalid.",
        "Write one of the words that the message lists, or remove the annotation.",
    ),
    Reason.UNKNOWN_GPU_TYPE: (
        "The annotation with the required type of card names no known type.",
        "Write one of the types that the message lists, or have it added to gpu_types.",
    ),
    Reason.GPU_TYPE_CHANGED: (
        "An existing pod would name other types of cards. It may already have a card of its"
        " type, and would no longer count as that type.",
        "Create another pod with the other type, or change the template of its controller.",
    ),
    Reason.RESERVED_ANNOTATION: (
        "The object carries an annotation that only the ledger or a device plugin may write.",
        "Remove the annotation, or have the user listed in trusted_identities.",
    ),
    Reason.FORGED_OWNER: (
        "The object names a controller that did not create it, and would draw from the envelope"
        " of that controller.",
        "Remove metadata.ownerReferences; for a controller of your own, see controller_identities.",
    ),
    Reason.LEAVES_QUOTA: (
        "A quota counts the object by its labels, priority class or scopes. It would no longer"
        " count it after this change, or under the named controller.",
        "Keep the labels, and create another object. A user whom the policy exempts may change"
        " them.",
    ),
    Reason.PRIVILEGED_CONTAINER: (
        "The pod asks for cards and one of its containers is privileged: an init container, a"
        " sidecar, an app container or an ephemeral one. A privileged container sees all cards of"
        " the node, and no limit holds for it.",
        "Remove `securityContext.privileged` (for a debugging container: `kubectl debug"
        " --profile=general`), or allow it with the setting privileged.",
    ),
    Reason.NODE_ASSIGNED: (
        "The pod asks for cards, its scheduler places pods on cards, and `spec.nodeName` would"
        " bypass that scheduler.",
        "Remove `spec.nodeName` and select the node by nodeSelector or affinity, or name a"
        " scheduler that does not place on cards.",
    ),
    Reason.CARD_MEMORY_UNKNOWN: (
        "The request asks for a whole card or a percentage of one, a quota limits memory, and no"
        " size of a card is known.",
        "Ask for memory in MiB, or set worst_card_memory.",
    ),
    Reason.ATTEMPT_DIFFERS: (
        "One attempt to create an object was reviewed with two bodies, which an API server never"
        " does.",
        "Find the other sender of reviews; require client certificates.",
    ),
    Reason.CLUSTER_NAME_TAKEN: (
        "The cluster's name belongs to another cluster in this ledger.",
        "Give this cluster another name with --cluster.",
    ),
    Reason.TOO_LARGE: (
        "The decision does not fit one record of the log.",
        "Split the request, or cover fewer namespaces with one quota.",
    ),
    Reason.EXCEEDS_LIMIT: (
        "The request alone is larger than the limit, so it can never fit.",
        "Ask for less, or have the limit raised.",
    ),
    Reason.UNIVERSE_EXCEEDED: (
        "A quota over many namespaces or clusters has no room left.",
        "Wait, ask for what is free, or have the limit raised.",
    ),
    Reason.QUOTA_EXCEEDED: (
        "A quota of the namespace has no room left.",
        "Wait, ask for what is free, or have the limit raised; the message names the holders.",
    ),
    Reason.CARD_EXCEEDED: (
        "A card has no room left.",
        "Wait, or ask for less.",
    ),
    Reason.TOO_MANY_UNSETTLED: (
        "One owner has too many creations whose outcome is not known yet.",
        "Check for another webhook or a native quota that denies them. They settle in a minute.",
    ),
    Reason.LOG_SHARE_EXCEEDED: (
        "The namespace has written more into the log than one namespace may.",
        "Wait for the time in the message, and find out which program creates and changes so"
        " many objects; or raise log_namespace_rate and log_namespace_burst.",
    ),
    Reason.POD_UNKNOWN: (
        "The pod that is to get cards is not in the ledger.",
        "The webhook or the watch adds it; the scheduler tries again.",
    ),
    Reason.POD_PLACED: (
        "The pod, or an ending pod of the same name, has cards already.",
        "Wait until the other pod is gone; `gpuledger cards --pods` shows it.",
    ),
    Reason.NODE_UNREGISTERED: (
        "The node announces no cards.",
        "Check its device plugin, and the annotation of the node with its cards.",
    ),
    Reason.NODE_BUSY: (
        "HAMi's device plugin is handing out the cards of this node to another pod.",
        "The plugin serves one pod at a time; the scheduler tries again.",
    ),
    Reason.INVALID_PLACEMENT: (
        "The proposed cards are invalid in every state of the ledger.",
        "Report it: this is a defect.",
    ),
    Reason.NODE_INSUFFICIENT_DEVICE: (
        "The node has fewer cards than one container asks for.",
        "Ask for fewer cards, or add a node with more cards.",
    ),
    Reason.CARD_NOT_FOUND: (
        "The node no longer has this card.",
        "The scheduler chooses again.",
    ),
    Reason.CARD_NOT_HEALTHY: (
        "The node reports the card as unhealthy.",
        "Check the card and the node's device plugin.",
    ),
    Reason.CARD_CORDONED: (
        "The card is closed for new pods.",
        "Uncordon it, or wait.",
    ),
    Reason.CARD_TYPE_MISMATCH: (
        "The card has another vendor, type or mode than the pod accepts.",
        "Check the annotations of the pod that name types and modes.",
    ),
    Reason.NUMA_NOT_FIT: (
        "The cards of one container would be on several NUMA nodes, which the pod forbids.",
        "Ask for fewer cards, or do not bind to one NUMA node.",
    ),
    Reason.CARD_UUID_MISMATCH: (
        "The pod names other cards, or excludes this one.",
        "Check the annotations of the pod that name cards.",
    ),
    Reason.CARD_TIME_SLICING_EXHAUSTED: (
        "The card has as many containers as may share it.",
        "Wait, or raise the number of slots that the node announces.",
    ),
    Reason.EXCLUSIVE_CONFLICT: (
        "A pod has the card exclusively, or asks for it exclusively while others are on it.",
        "Wait, or ask for less than all cores of a card.",
    ),
    Reason.RESOURCE_QUOTA_NOT_FIT: (
        "The cards fit, but a quota has no room for the charge of the pod on them.",
        "Wait, ask for less, or have the limit raised.",
    ),
    Reason.CARD_INSUFFICIENT_MEMORY: (
        "The card has too little memory left.",
        "Wait, or ask for less.",
    ),
    Reason.CARD_INSUFFICIENT_CORE: (
        "The card has too few cores left.",
        "Wait, or ask for less.",
    ),
    Reason.CARD_COMPUTE_UNITS_EXHAUSTED: (
        "All cores of the card are promised, so that it also refuses pods without a share of"
        " cores.",
        "Wait; another card may have some left.",
    ),
    Reason.CARD_MIG_INFEASIBLE: (
        "No instance of the card that is large enough can be placed beside the existing ones.",
        "Wait, or ask for less.",
    ),
    Reason.CARD_CLAIMED: (
        "The room on the card is reserved for a pod whose victims are being evicted.",
        "Wait; the claim ends after a bound.",
    ),
    Reason.ALLOCATED_INSUFFICIENT: (
        "Some cards fit, but fewer than one container asks for.",
        "Wait, or ask for fewer cards.",
    ),
    Reason.OVERLOADED: (
        "Too many requests wait for the ledger.",
        "Try again; if it stays, check the latency of the log.",
    ),
    Reason.LOG_FULL: (
        "The log is at its maximum size, or only the reserve for commits and releases is left.",
        "Raise log_bytes_max; a log never gets shorter.",
    ),
    Reason.LEDGER_UNAVAILABLE: (
        "The log cannot be reached, or stores nothing, so nothing can be promised.",
        "Try again in seconds; see /readyz.",
    ),
    Reason.LEDGER_STOPPED: (
        "The ledger found damage in its log and stopped.",
        "An operator must look at it: `gpuledger audit verify` names the position.",
    ),
    Reason.INTERNAL_ERROR: (
        "A defect of gpuledger affected this one request. Nothing was charged, and other"
        " requests continue.",
        "Report it with the service's log around that moment.",
    ),
}


def command_line() -> str:
    """Return the page about every command, from the Typer app."""
    root = typer.main.get_command(build())
    assert isinstance(root, TyperGroup)
    lines = [
        "# The command line",
        "",
        f"{NOTE}",
        "Every command finds the same ledger by `--store-dir`, `--nats` or the environment. Beside"
        " a running service it uses the log of the service. Otherwise it starts the store's own"
        " server for the duration of the command. Data goes to standard output, everything else"
        " to standard error. Values without an option of the command (NATS credentials, for"
        " instance) come from `--config` or the environment, as in [settings](settings.md).",
        "",
        "| exit code | meaning |",
        "|---|---|",
        *(f"| {code.value} | {EXITS[code]} |" for code in Exit),
        "",
    ]
    for path, command in _commands(root, ("gpuledger",)):
        lines += _command(path, command)
    return "\n".join(lines)


def _commands(
    group: TyperGroup, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], TyperCommand]]:
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from _commands(command, (*path, name))
        elif isinstance(command, TyperCommand) and not command.hidden:
            yield (*path, name), command


def _command(path: tuple[str, ...], command: TyperCommand) -> list[str]:
    """Return the section about one command; options that are settings are on their own page."""
    name = " ".join(path)
    settings = {help_of(setting) for setting in documentation()}
    taken = [one for one in command.params if getattr(one, "help", "") in settings]
    own = [
        one
        for one in command.params
        if isinstance(one, TyperArgument | TyperOption)
        and one not in taken
        and one.name not in _EVERYWHERE
        and not getattr(one, "hidden", False)
    ]
    arguments = [_shown(one) for one in own if one.param_type_name == "argument"]
    examples = (command.epilog or "").removeprefix("\b\nExamples:\n").splitlines()
    rows = [f"| `{_shown(one)}` | {getattr(one, 'help', '')} |" for one in own]
    text = (command.help or "").strip().splitlines()
    lines = [f"## {name}", "", *text, ""]
    lines += ["```console", f"$ {' '.join((name, '[OPTIONS]', *arguments))}", "```", ""]
    if rows:
        lines += ["| option or argument | meaning |", "|---|---|", *rows, ""]
    if taken:
        names = ", ".join(f"`{one.opts[0]}`" for one in taken)
        every = "every setting" if len(taken) == len(settings) else names
        lines += [f"Also takes [settings](settings.md): {every}, and `--config FILE`.", ""]
    return [*lines, "```sh", *(line.removeprefix("  ") for line in examples), "```", ""]


_EVERYWHERE: Final = ("config", "help")


def _shown(parameter: TyperArgument | TyperOption) -> str:
    """Return an argument by its name, an option with its names and what it takes."""
    metavar = str(getattr(parameter, "metavar", None) or "")
    if parameter.param_type_name == "argument":
        return metavar
    names = ", ".join(sorted((*parameter.opts, *parameter.secondary_opts), key=len))
    return f"{names} {metavar}".strip().replace("|", "\\|")


def settings_page() -> str:
    """Return the page about every setting of the service."""
    lines = [
        "# Settings",
        "",
        f"{NOTE}",
        "Sources, the strongest first: the command line, the environment, the TOML file that"
        " `--config` or `GPULEDGER_CONFIG` names, the default. In the file a setting has the name"
        " of this table. In the environment and on the command line several values are separated"
        " by commas. All errors are reported at once. `gpuledger serve --print-config` shows every"
        " value and its source.",
        "",
        "| setting | option | environment | type | default | meaning |",
        "|---|---|---|---|---|---|",
    ]
    for one in documentation():
        cells = (one.name, one.option, one.environment, one.type, one.default)
        shown = " | ".join(f"`{cell}`".replace("|", "\\|") for cell in cells)
        lines.append(f"| {shown} | {one.description} |")
    return "\n".join([*lines, ""])


def metrics_page() -> str:
    """Return the page about the service's own metrics."""
    lines = [
        "# Metrics",
        "",
        f"{NOTE}",
        "Served at `/metrics` for Prometheus, [to permitted"
        " accounts](../how-to/operating.md#scraping). Labels come from closed sets."
        " The projection adds the usage of every quota and card: `gpuledger_quota_*` by"
        " `cluster`, `namespace`, `quota`, `resource`, and `gpuledger_card_*` by `cluster`, `node`,"
        " `card`. Lines and cards beyond the bound are only counted:"
        " `gpuledger_quota_lines_left_out`, `gpuledger_cards_left_out`.",
        "",
        "| metric | kind | labels | meaning |",
        "|---|---|---|---|",
    ]
    for one in METRICS:
        labels = ", ".join(f"`{label}`" for label in one.labels) or "none"
        lines.append(f"| `{one.full_name}` | {one.kind.value} | {labels} | {one.help} |")
    return "\n".join([*lines, ""])


def reasons_page() -> str:
    """Return the page about every reason of a denial, in order of precedence."""
    lines = [
        "# Reasons",
        "",
        f"{NOTE}",
        "Reasons of denials. They are stable and appear in brackets at the end of the message."
        " If several apply, the message has the one that is higher in this table.",
        "",
        "If there is no room, the message contains the total demand of the object after the"
        " change, the limit of the quota, and its current usage; then every other limit that is"
        ' short. "It can never fit" also holds for a quota without any other usage. "Try again'
        ' when 8000 MiB are released" is the amount that other objects must give back. An advice'
        ' ("at most 2 replicas") was tested: it fits, and one more does not. "Used by" lists'
        " the largest holders of the first limit. Programs read `details.causes`: one for each"
        " short limit, with its key as `field`.",
        "",
        "| reason | meaning | what to do |",
        "|---|---|---|",
    ]
    for reason in Reason:
        meaning, remedy = REASONS[reason]
        lines.append(f"| `{reason.value}` | {meaning} | {remedy} |")
    return "\n".join([*lines, ""])


def scheduler_settings() -> str:
    """Return the shipped settings of a scheduler, with the managed resources of its vendors."""
    text = (HERE / SCHEDULER_SETTINGS).read_text()
    extender = tomllib.loads(yaml.safe_load(text)["data"]["extender.toml"])
    names = extender.get("vendors", Settings().vendors)
    found = {"managedResources": msgspec.to_builtins(managed_resources(chosen(names)))}
    block = textwrap.indent(yaml.safe_dump(found, sort_keys=False), MANAGED_INDENT)
    return MANAGED.sub(lambda _: block, text)


PAGES: Final[dict[str, Callable[[], str]]] = {
    "reference/command-line.md": command_line,
    "reference/settings.md": settings_page,
    "reference/metrics.md": metrics_page,
    "reference/reasons.md": reasons_page,
    SCHEDULER_SETTINGS: scheduler_settings,
}


def stale() -> list[str]:
    """Return the names of the pages that are not what the code says."""
    return [
        name
        for name, make in PAGES.items()
        if not (HERE / name).exists() or (HERE / name).read_text() != make()
    ]


def main() -> int:
    """Write the pages, or check them."""
    parser = argparse.ArgumentParser(description="Generate the reference pages.")
    parser.add_argument("--check", action="store_true", help="change nothing, exit with 1 if stale")
    if parser.parse_args().check:
        found = stale()
        if found:
            sys.stderr.write(f"stale: {', '.join(found)}; run `make docs`\n")
        return bool(found)
    for name, make in PAGES.items():
        (HERE / name).write_text(make())
    return 0


if __name__ == "__main__":
    sys.exit(main())
