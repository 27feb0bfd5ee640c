"""Settings of `gpuledger serve`: one frozen struct in which every field documents itself.

This module says what may be set, what it means, its unit, bounds and default; `setting_sources`
reads it from file, environment and command line, `setting_texts` tells people about it.
"""

from typing import Annotated, Any, Final, Literal, get_type_hints

import msgspec
from msgspec import Meta

SECRET: Final = {"secret": True}

NAME_PATTERN: Final = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
_DOMAIN: Final = r"^([A-Za-z0-9_-]{1,64})?$"
_LABEL_VALUE: Final = r"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$"
_LABEL: Final = (
    r"^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
    r"=([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$"
)
_CONTROLLER: Final = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?=\S+$"
_CARD_POLICY: Final = r"^(binpack|spread|numa|mutex|topology-aware|whole)$"
HOST_PORT_PATTERN: Final = r"^(\[[0-9a-fA-F:]+\]|[^\s:/\[\]]+):[0-9]{1,5}$"

Choice = Literal["deny", "allow"]


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything `gpuledger serve` can be told. Durations are seconds, sizes bytes or MiB."""

    store_dir: Annotated[
        str, Meta(min_length=1, description="Directory of everything this service keeps.")
    ] = "gpuledger-data"
    listen: Annotated[
        str,
        Meta(
            pattern=HOST_PORT_PATTERN,
            description="HOST:PORT to serve on; [ADDRESS]:PORT for IPv6, port 0 takes a free one.",
            examples=["127.0.0.1:8443"],
        ),
    ] = "127.0.0.1:8443"

    nats: Annotated[
        tuple[str, ...],
        Meta(
            description="URLs of NATS servers; none starts the embedded server in store_dir.",
            examples=["tls://nats.example:4222"],
        ),
    ] = ()
    nats_user: Annotated[str, Meta(description="User name at the NATS servers.")] = ""
    nats_password: Annotated[
        str,
        Meta(
            description="Password at the NATS servers; better in a file or the environment.",
            extra=SECRET,
        ),
    ] = ""
    nats_login_file: Annotated[
        str,
        Meta(
            description="File with USER:PASSWORD for the NATS servers, read again when it changes;"
            " instead of user and password.",
            examples=["/etc/gpuledger/nats/login"],
        ),
    ] = ""
    nats_creds: Annotated[
        str,
        Meta(
            description="NATS credentials file (.creds), read again when it changes; instead of"
            " user and password."
        ),
    ] = ""
    nats_ca: Annotated[
        str,
        Meta(
            description="PEM file with the CA of the NATS servers, read again when it changes;"
            " none: the system's. Nothing is sent to a server without TLS."
        ),
    ] = ""
    nats_monitor: Annotated[
        tuple[str, ...],
        Meta(
            description="Monitoring URLs of all NATS servers, to see whether they sync to disk.",
            examples=["http://nats-0.example:8222"],
        ),
    ] = ()
    nats_domain: Annotated[
        str,
        Meta(
            pattern=_DOMAIN,
            description="JetStream domain that has the log, where a leaf node leads to it; none:"
            " the servers in nats have it themselves.",
            examples=["hub"],
        ),
    ] = ""
    shard: Annotated[
        str, Meta(pattern=NAME_PATTERN, description="Name of the log to write.", examples=["main"])
    ] = "main"
    replicas: Annotated[
        Literal[1, 3, 5],
        Meta(description="Copies of the log that NATS keeps when the log is created."),
    ] = 1
    log_bytes_max: Annotated[
        int,
        Meta(
            ge=16 * 1024**2,
            description="Largest size of the log, bytes; raised at a start, never lowered.",
        ),
    ] = 2 * 1024**3
    log_namespace_burst: Annotated[
        int,
        Meta(ge=1024**2, description="What one namespace may append to the log at once, bytes."),
    ] = 256 * 1024**2
    log_namespace_rate: Annotated[
        int,
        Meta(
            ge=1,
            description="What one namespace may append to the log in the long run, bytes per"
            " second; beyond both, nothing new is reserved for it (LogShareExceeded).",
        ),
    ] = 32 * 1024
    denials_days: Annotated[
        int, Meta(ge=1, le=3650, description="How long refusals stay explainable, days.")
    ] = 30
    snapshot_events: Annotated[
        int,
        Meta(ge=100, le=10_000_000, description="Events between two snapshots of the state."),
    ] = 50_000

    cluster: Annotated[
        str,
        Meta(
            pattern=NAME_PATTERN,
            description="This cluster's name in the ledger, bound to its kube-system namespace.",
            examples=["east-1"],
        ),
    ] = "local"
    region: Annotated[
        str,
        Meta(
            pattern=_LABEL_VALUE,
            description="Region of this cluster, for the quotas that select by region.",
            examples=["eu-west"],
        ),
    ] = ""
    cluster_labels: Annotated[
        tuple[Annotated[str, Meta(pattern=_LABEL)], ...],
        Meta(
            description="Labels of this cluster, KEY=VALUE, for the quotas that select by them.",
            examples=["tier=prod"],
        ),
    ] = ()
    universe_authority: Annotated[
        bool,
        Meta(
            description="Whether this cluster's UniverseResourceQuotas are the ledger's; of several"
            " clusters on one log, exactly one."
        ),
    ] = True
    write_quota_status: Annotated[
        bool,
        Meta(
            description="Show what is charged in the status of ResourceQuotas, for the limits.*"
            " keys that Kubernetes itself does not count."
        ),
    ] = True
    kubernetes: Annotated[
        bool,
        Meta(description="Watch a cluster; without one, quotas come from `gpuledger quota set`."),
    ] = True
    kubeconfig: Annotated[
        str, Meta(description="kubeconfig file; none: the service account of the pod.")
    ] = ""
    namespace: Annotated[
        str,
        Meta(
            pattern=NAME_PATTERN,
            description="Namespace the service itself runs in; it is never held up by itself.",
        ),
    ] = "gpuledger-system"
    exempt_namespaces: Annotated[
        tuple[str, ...],
        Meta(
            description="Further namespaces whose pods the webhooks never see.",
            examples=["monitoring"],
        ),
    ] = ("kube-system",)
    register_webhook: Annotated[
        str,
        Meta(
            pattern=r"^(https://[^\s/]+)?$",
            description="Base URL under which the API server reaches this service; registers it.",
            examples=["https://gpuledger.example:8443"],
        ),
    ] = ""

    tls_cert: Annotated[
        str, Meta(description="PEM certificate chain to serve with; none: one is made.")
    ] = ""
    tls_key: Annotated[str, Meta(description="PEM private key that belongs to tls_cert.")] = ""
    tls_names: Annotated[
        tuple[str, ...],
        Meta(
            description="Further host names and addresses in the certificate that is made.",
            examples=["gpuledger.gpuledger-system.svc"],
        ),
    ] = ()
    client_ca: Annotated[
        str,
        Meta(description="PEM file with the CA whose clients may use /admission and /extender."),
    ] = ""
    client_subjects: Annotated[
        tuple[str, ...],
        Meta(
            description="Subjects (RFC 4514) of the client certificates that may; none: all of it.",
            examples=["CN=kube-apiserver"],
        ),
    ] = ()
    metrics_token_file: Annotated[
        str,
        Meta(
            description="File with a token that may read /metrics and /readyz?verbose from other"
            " machines, besides tokens of the cluster that may `get` /metrics and clients that may"
            " send reviews."
        ),
    ] = ""
    plain_http: Annotated[
        bool, Meta(description="Serve HTTP without TLS, for a proxy or a test on loopback.")
    ] = False
    connections_max: Annotated[
        int,
        Meta(
            ge=16,
            le=65_536,
            description="Open connections of clients that may send reviews; beyond, the one that"
            " was used least recently is closed.",
        ),
    ] = 4096
    connections_uncertified_max: Annotated[
        int,
        Meta(
            ge=16,
            le=65_536,
            description="Open connections of all other clients where client_ca is set, a quarter of"
            " them from one address; beyond, the same.",
        ),
    ] = 512
    production: Annotated[
        bool,
        Meta(description="Not ready unless durable, authenticated and replicated as production."),
    ] = False

    settle_seconds: Annotated[
        float,
        Meta(
            gt=0,
            le=3600,
            description="Age at which a hold or a placement may be proved dead; 60 at least, 45"
            " without the extender, less only in tests.",
        ),
    ] = 60.0
    admission_deadline_seconds: Annotated[
        float,
        Meta(gt=0, lt=10, description="Time for one review, below the webhook's own 10 seconds."),
    ] = 9.0
    review_bytes_max: Annotated[
        int, Meta(ge=65_536, le=64 * 1024**2, description="Largest review that is read, bytes.")
    ] = 8 * 1024**2
    on_unavailable: Annotated[
        Choice, Meta(description="What a review is answered while the log cannot be reached.")
    ] = "deny"
    privileged: Annotated[
        Choice, Meta(description="Whether privileged containers may ask for accelerators.")
    ] = "deny"
    trusted_identities: Annotated[
        tuple[str, ...],
        Meta(
            description="Further user names that may write the ledger's and HAMi's allocation"
            " annotations; `gpuledger import hami --dry-run` finds HAMi's.",
            examples=["system:serviceaccount:gpu-tools:vgpu-hami-device-plugin"],
        ),
    ] = ()
    trust_hami_defaults: Annotated[
        bool,
        Meta(
            description="Whether the accounts of a HAMi that is release hami in kube-system may"
            " write them, too."
        ),
    ] = True
    pseudonym_key_file: Annotated[
        str,
        Meta(
            description="File with the key, 32 bytes or more, of the pseudonyms that are recorded"
            " in the place of users' names; the same for all replicas. None: names are recorded."
        ),
    ] = ""
    owner_holds_max: Annotated[
        int,
        Meta(ge=1, le=100_000, description="Unsettled creations of one owner in a namespace."),
    ] = 64

    mode: Annotated[
        Literal["enforce", "warn", "off"],
        Meta(description="Whether limits hold, in namespaces that no LedgerPolicy selects."),
    ] = "enforce"
    on_exceeded: Annotated[
        Literal["deny", "pending"],
        Meta(description="Whether pods beyond a limit are refused or wait, where none selects."),
    ] = "deny"
    surge: Annotated[
        Literal["opportunistic", "reserve", "strict"],
        Meta(description="What a roll-out may use beyond its replicas, where none selects."),
    ] = "opportunistic"
    elastic: Annotated[
        Literal["current", "max"],
        Meta(
            description="Whether what an autoscaler enlarges is charged as it is, or at the most"
            " that it may become; where none selects."
        ),
    ] = "current"
    foreign_holders: Annotated[
        Literal["namespace", "none"],
        Meta(
            description="What a denial shows of other namespaces that hold a shared quota: each"
            " namespace with its share, or nothing; where no policy selects."
        ),
    ] = "namespace"
    pods_only: Annotated[
        bool,
        Meta(description="Charge pods alone and workloads nothing, where no policy selects."),
    ] = False
    exempt_users: Annotated[
        tuple[str, ...],
        Meta(
            description="Users that may exceed limits, and are charged; where none selects.",
            examples=["system:serviceaccount:ops:rescuer"],
        ),
    ] = ()
    exempt_groups: Annotated[
        tuple[str, ...],
        Meta(description="Groups that may exceed limits, and are charged; where none selects."),
    ] = ()
    workload_kinds: Annotated[
        tuple[str, ...],
        Meta(
            description="YAML files, or folders of them, that describe further kinds of workloads.",
            examples=["/etc/gpuledger/kinds"],
        ),
    ] = ()
    controller_identities: Annotated[
        tuple[Annotated[str, Meta(pattern=_CONTROLLER)], ...],
        Meta(
            description="Further users or groups that create what a kind controls, KIND=IDENTITY;"
            " what they create draws from its envelope.",
            examples=["jobs.batch=system:serviceaccount:volcano-system:volcano-controllers"],
        ),
    ] = ()

    managed_resources: Annotated[
        tuple[str, ...],
        Meta(
            description="Further resources whose requests are charged, besides vendors' cards.",
            examples=["cpu", "nvidia.com/mig-1g.10gb"],
        ),
    ] = ()
    vendors: Annotated[
        tuple[str, ...],
        Meta(
            description="Vendors whose cards are charged; `ascend` stands for all `ascend-…`.",
            examples=["nvidia", "hygon"],
        ),
    ] = ("nvidia",)
    vendors_file: Annotated[
        str, Meta(description="YAML file with further vendors and their resource names.")
    ] = ""
    gpu_types: Annotated[
        tuple[str, ...],
        Meta(
            description="Known types of cards, `name` or `name=MiB` of one; pods that name one are"
            " charged on its keys too, as limits.v100.nvidia.com/gpumem.",
            examples=["v100=32768", "t4"],
        ),
    ] = ()
    gpu_type_annotations: Annotated[
        tuple[str, ...],
        Meta(description="Annotations in which a pod names the types of cards it can run on."),
    ] = ("nvidia.com/use-gputype", "nvidia.com/gpu-type")
    worst_card_memory: Annotated[
        int,
        Meta(
            ge=0,
            le=2**24,
            description="MiB to assume for a card of unknown size;"
            " 0: the largest that two nodes announce.",
        ),
    ] = 0
    card_memory_max: Annotated[
        int,
        Meta(
            ge=1,
            le=2**24,
            description="MiB above which no announced card counts for the charge of whole cards and"
            " percentages.",
        ),
    ] = 294_912
    node_keeper: Annotated[
        Literal["hami", "gpuledger"],
        Meta(description="Who hands cards out on nodes that do not say so (gpuledger.io/keeper)."),
    ] = "hami"
    card_scaling: Annotated[
        tuple[str, ...],
        Meta(
            description="Percent of memory and cores to promise of cards that gpuledger hands out:"
            " node:GLOB=memory:PERCENT,cores:PERCENT or type:TEXT=…; the first that fits.",
            examples=["node:dev-*=memory:150", "type:T4=cores:200"],
        ),
    ] = ()
    claim_seconds: Annotated[
        float,
        Meta(gt=0, le=3600, description="How long cards are kept for a pod that others leave for."),
    ] = 60.0
    preemption: Annotated[
        Literal["off", "on"],
        Meta(
            description="Whether pods of lower priority are evicted for a pod that fits nowhere for"
            " want of cards."
        ),
    ] = "off"
    node_policy: Annotated[
        Literal["binpack", "spread", "whole"],
        Meta(
            description="Which nodes come first: the fullest, the emptiest, or those that keep most"
            " cards whole; where a pod does not say."
        ),
    ] = "binpack"
    card_policies: Annotated[
        tuple[Annotated[str, Meta(pattern=_CARD_POLICY)], ...],
        Meta(
            min_length=1,
            max_length=6,
            description="Which cards of a node come first, in order of importance: binpack, spread,"
            " numa, mutex, topology-aware, whole; where a pod does not say.",
            examples=["numa", "binpack"],
        ),
    ] = ("spread",)
    weight_slots: Annotated[
        int, Meta(ge=0, le=1000, description="How much slots count in the score of a card.")
    ] = 1
    weight_cores: Annotated[
        int, Meta(ge=0, le=1000, description="How much cores count in the score of a card.")
    ] = 1
    weight_memory: Annotated[
        int, Meta(ge=0, le=1000, description="How much memory counts in the score of a card.")
    ] = 1
    node_score: Annotated[
        str,
        Meta(
            max_length=1_000,
            description="Expression that scores nodes in the place of node_policy, of memory,"
            " cores, slots, whole and cards; none: the policy.",
            examples=["3 * memory + cores - 5 * whole"],
        ),
    ] = ""
    bind_wait_seconds: Annotated[
        float,
        Meta(
            gt=0,
            le=25,
            description="How long a bind waits for a node that hands cards out to one pod at a"
            " time; below the 30 seconds that the scheduler waits.",
        ),
    ] = 20.0
    extender: Annotated[
        bool, Meta(description="Answer kube-scheduler's extender calls, at /extender.")
    ] = True
    extender_bytes_max: Annotated[
        int,
        Meta(
            ge=65_536,
            le=1024**3,
            description="Largest request of a scheduler that is read, bytes; also when compressed.",
        ),
    ] = 256 * 1024**2
    memory_factor: Annotated[
        int, Meta(ge=1, le=2**20, description="MiB that one unit of nvidia.com/gpumem stands for.")
    ] = 1
    default_memory: Annotated[
        int,
        Meta(ge=0, le=2**24, description="MiB for a card of nvidia without; 0: the whole card."),
    ] = 0
    default_cores: Annotated[
        int,
        Meta(ge=0, le=100, description="Percent of cores of nvidia's cards where none are named."),
    ] = 0
    default_count: Annotated[
        int, Meta(ge=1, le=64, description="Cards of nvidia where only memory or cores are named.")
    ] = 1
    zero_is_unlimited: Annotated[
        bool, Meta(description="Read an explicit quota of 0 as no limit, as older HAMi does.")
    ] = False
    scheduler_name: Annotated[
        str,
        Meta(
            description="schedulerName to give to pods of the default scheduler that ask for cards;"
            " none: as it is."
        ),
    ] = ""
    card_schedulers: Annotated[
        tuple[str, ...],
        Meta(
            description="Further schedulers that place pods on cards, besides scheduler_name,"
            " gpuledger-scheduler and hami-scheduler; the pods of no others are completed.",
            examples=["my-scheduler"],
        ),
    ] = ()

    queue_commands_max: Annotated[
        int, Meta(ge=1, le=1_000_000, description="Commands that wait, above which is Overloaded.")
    ] = 20_000
    queue_per_namespace_max: Annotated[
        int, Meta(ge=1, le=1_000_000, description="Of these, commands of one namespace.")
    ] = 5_000
    group_commands_max: Annotated[
        int, Meta(ge=1, le=10_000, description="Commands decided into one record.")
    ] = 1000
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="Least severe log line that is written."),
    ] = "info"
    log_format: Annotated[
        Literal["json", "console"], Meta(description="Log lines for machines or for people.")
    ] = "json"


NAMES: Final = Settings.__struct_fields__
TYPES: Final[dict[str, Any]] = {
    name: kind
    for name, kind in get_type_hints(Settings, include_extras=True).items()
    if name in NAMES
}
DEFAULTS: Final = Settings()
