"""Cards: vendors, amounts, and how the extender places pods."""

from typing import Annotated, Final, Literal

from msgspec import Meta

from ledger.runtime.settings.resource_claim_section import ResourceClaimSection

_CARD_POLICY: Final = r"^(binpack|spread|numa|mutex|topology-aware|whole)$"


class CardSection(ResourceClaimSection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Cards: vendors, amounts, and how the extender places pods."""

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
            description="Vendors whose cards are charged; `ascend` means all `ascend-…`.",
            examples=["nvidia", "hygon"],
        ),
    ] = ("nvidia",)
    vendors_file: Annotated[
        str, Meta(description="YAML file with further vendors and their resource names.")
    ] = ""
    gpu_types: Annotated[
        tuple[str, ...],
        Meta(
            description="Known types of cards, `name` or `name=MiB` of a card; pods that name a"
            " type are also charged on its keys, such as limits.v100.nvidia.com/gpumem.",
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
        Meta(description="Device plugin on nodes without the annotation gpuledger.io/keeper."),
    ] = "hami"
    card_scaling: Annotated[
        tuple[str, ...],
        Meta(
            description="Percent of memory and cores that pods may get of cards that gpuledger"
            " hands out: node:GLOB=memory:PERCENT,cores:PERCENT or type:TEXT=…; the first match"
            " applies.",
            examples=["node:dev-*=memory:150", "type:T4=cores:200"],
        ),
    ] = ()
    claim_seconds: Annotated[
        float,
        Meta(
            gt=0,
            le=3600,
            description="Time for which cards are reserved for a preemptor while its victims end.",
        ),
    ] = 60.0
    preemption: Annotated[
        Literal["off", "on"],
        Meta(
            description="Whether pods of lower priority are evicted for a pod that fits on no node"
            " because of cards."
        ),
    ] = "off"
    node_policy: Annotated[
        Literal["binpack", "spread", "whole"],
        Meta(
            description="Preferred nodes for pods without the annotation: the fullest, the"
            " emptiest, or those that leave most cards unused."
        ),
    ] = "binpack"
    card_policies: Annotated[
        tuple[Annotated[str, Meta(pattern=_CARD_POLICY)], ...],
        Meta(
            min_length=1,
            max_length=6,
            description="Preferred cards of a node, in order of importance: binpack, spread,"
            " numa, mutex, topology-aware, whole; for pods without the annotation.",
            examples=["numa", "binpack"],
        ),
    ] = ("spread",)
    weight_slots: Annotated[
        int, Meta(ge=0, le=1000, description="Weight of slots in the score of a card.")
    ] = 1
    weight_cores: Annotated[
        int, Meta(ge=0, le=1000, description="Weight of cores in the score of a card.")
    ] = 1
    weight_memory: Annotated[
        int, Meta(ge=0, le=1000, description="Weight of memory in the score of a card.")
    ] = 1
    node_score: Annotated[
        str,
        Meta(
            max_length=1_000,
            description="Expression of memory, cores, slots, whole and cards that scores nodes"
            " instead of node_policy; none: the policy.",
            examples=["3 * memory + cores - 5 * whole"],
        ),
    ] = ""
    bind_wait_seconds: Annotated[
        float,
        Meta(
            gt=0,
            le=25,
            description="Time for which a bind waits for the lock of a node; below the scheduler's"
            " 30 seconds.",
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
            description="Largest accepted request of a scheduler, bytes; also when compressed.",
        ),
    ] = 256 * 1024**2
    memory_factor: Annotated[
        int, Meta(ge=1, le=2**20, description="MiB of one unit of nvidia.com/gpumem.")
    ] = 1
    default_memory: Annotated[
        int,
        Meta(
            ge=0,
            le=2**24,
            description="MiB of an nvidia card for a request without memory; 0: the whole card.",
        ),
    ] = 0
    default_cores: Annotated[
        int,
        Meta(
            ge=0,
            le=100,
            description="Percent of cores of nvidia cards for a request without cores.",
        ),
    ] = 0
    default_count: Annotated[
        int, Meta(ge=1, le=64, description="nvidia cards for a request with only memory or cores.")
    ] = 1
    zero_is_unlimited: Annotated[
        bool, Meta(description="Read an explicit quota of 0 as no limit, as older HAMi does.")
    ] = False
    scheduler_name: Annotated[
        str,
        Meta(
            description="schedulerName for pods of the default scheduler that request cards; none:"
            " unchanged."
        ),
    ] = ""
    card_schedulers: Annotated[
        tuple[str, ...],
        Meta(
            description="Further schedulers that place pods on cards, besides scheduler_name,"
            " gpuledger-scheduler and hami-scheduler; pods of other schedulers are not completed.",
            examples=["my-scheduler"],
        ),
    ] = ()
