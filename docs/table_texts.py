"""Table texts: the meanings of exit codes and reasons in the tables of the reference pages."""

from typing import Final

from gpuledger.cli.exit_codes import Exit
from ledger.core.model.denials import Reason

OUTPUT: Final = (
    "## Output",
    "",
    "`-o` chooses the format, and `--no-headers` leaves the header of a table or CSV out.",
    "",
    "| `-o` | output |",
    "|---|---|",
    "| `table` | The columns that matter: ages as kubectl writes them, resources without"
    " `nvidia.com/`, and amounts in the unit of their resource: `16000Mi` of memory, `60%` of a"
    " card's cores. The column of the namespace is left out with `-n`, that of the cluster if there"
    " is one. In a pipe, the columns are the same. |",
    "| `wide` | All columns, with full names, amounts in whole numbers and times in RFC 3339. |",
    "| `name` | One name per line, without repetitions, for the arguments of other commands. |",
    "| `csv` | All columns, for spreadsheets. A text that a spreadsheet would take for a formula"
    " begins with an apostrophe. |",
    "| `json`, `yaml` | All fields. Amounts are integers in the unit of their resource: cards, MiB,"
    " percent of a card. |",
    "",
    "A terminal gets the default view in its width. Long texts continue on the next line, and long"
    " names lose their middle (`…`). Columns without room are named on standard error. Scripts read"
    " `json` or `csv`.",
    "",
    "`-A` lists all namespaces, also where another namespace is the default.",
    "",
    "`gpuledger --install-completion` installs the completion of commands, options and formats for"
    " bash, zsh and fish.",
    "",
    "## Exit codes",
    "",
)
"""The part of the page about commands on formats."""

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
    Reason.TOO_MANY_DEVICES: (
        "A resource claim asks for more than 32 devices in all, the most that an allocation holds,"
        " so kube-scheduler can never allocate it.",
        "Lower `count`, or divide the requests among several claims.",
    ),
    Reason.UNMAPPED_DEVICE_CLASS: (
        "The device class may select GPUs, and the mapping of device classes has no vendor for it,"
        " so its devices cannot be charged.",
        "Add its driver or its name to device_classes_file, or the name to other_device_classes if"
        " it selects no GPUs.",
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
        "The pod asks for cards, also by a resource claim, and one of its containers is"
        " privileged: an init container, a sidecar, an app container or an ephemeral one. A"
        " privileged container sees all cards of the node, and no limit holds for it.",
        "Remove `securityContext.privileged` (for a debugging container: `kubectl debug"
        " --profile=general`), or allow it with the setting privileged.",
    ),
    Reason.NODE_ASSIGNED: (
        "The pod asks for cards, its scheduler places pods on cards, and `spec.nodeName` would"
        " bypass that scheduler.",
        "Remove `spec.nodeName` and select the node by nodeSelector or affinity, or name a"
        " scheduler that does not place on cards.",
    ),
    Reason.CLAIM_TEMPLATE_MISSING: (
        "The pod, or a template of the workload, names a ResourceClaimTemplate that does not exist,"
        " and the policy of the namespace requires it.",
        "Create the ResourceClaimTemplate first, or have missingClaimTemplates of the policy set to"
        " `defer`.",
    ),
    Reason.CLAIM_OF_OTHER_POD: (
        "The pod names a ResourceClaim that was generated for another pod. That claim is charged"
        " with the other pod, and only as long as the other pod counts.",
        "Use resourceClaimTemplateName, or name a ResourceClaim that you create.",
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
    Reason.CARD_OFFERED_BY_DRA: (
        "A ResourceSlice has the card, so kube-scheduler allocates it for resource claims.",
        "Ask for it by a resource claim, or let one driver alone offer the card.",
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
    Reason.CLAIM_UNDECIDED: (
        "An object on which the charge of a ResourceClaim depends could not be read in time: its"
        " template, its device class, its pod, or another claim of the same pod.",
        "Try again; if it persists, /readyz of gpuledger names the problem.",
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
