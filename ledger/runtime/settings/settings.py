"""Settings of `gpuledger serve`: one frozen struct whose fields have their documentation.

The fields are in sections, one file each, with description, unit, bounds and default. Each section
extends the one before it, because a struct cannot have the fields of two bases; so the order of the
sections is the order of the reference page. `setting_sources` reads settings from file, environment
and command line, `setting_texts` renders their documentation.
"""

from typing import Annotated, Any, Final, Literal, get_type_hints

from msgspec import Meta

from ledger.runtime.settings.client_section import ClientSection


class Settings(ClientSection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of `gpuledger serve`. Durations are seconds, sizes bytes or MiB.

    The sections: `LogSection`, `ClusterSection`, `ServingSection`, `AdmissionSection`,
    `PolicySection`, `ResourceClaimSection`, `CardSection`, `ClientSection`, and here the queue of
    commands and the process's own log.
    """

    queue_commands_max: Annotated[
        int, Meta(ge=1, le=1_000_000, description="Waiting commands; a further one is Overloaded.")
    ] = 20_000
    queue_per_namespace_max: Annotated[
        int, Meta(ge=1, le=1_000_000, description="Waiting commands of one namespace.")
    ] = 5_000
    group_commands_max: Annotated[
        int, Meta(ge=1, le=10_000, description="Most commands in one record.")
    ] = 1000
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="Least severe level of log lines."),
    ] = "info"
    log_format: Annotated[Literal["json", "console"], Meta(description="Format of log lines.")] = (
        "json"
    )


NAMES: Final = Settings.__struct_fields__
TYPES: Final[dict[str, Any]] = {
    name: kind
    for name, kind in get_type_hints(Settings, include_extras=True).items()
    if name in NAMES
}
DEFAULTS: Final = Settings()
