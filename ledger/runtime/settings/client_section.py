"""Reading from elsewhere: the service or the cluster from which commands read, and their access."""

from typing import Annotated, Final

from msgspec import Meta

from ledger.runtime.settings.card_section import CardSection
from ledger.runtime.settings.setting_patterns import SECRET, SERVICE_URL_PATTERN


class ClientSection(CardSection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Reading from elsewhere: the service or the cluster from which commands read, and their
    access. The service itself does not use these settings."""

    server: Annotated[
        str,
        Meta(
            pattern=SERVICE_URL_PATTERN,
            description="URL of a service from which commands read; http only on loopback.",
            examples=["https://gpuledger.example:8443"],
        ),
    ] = ""
    token_file: Annotated[
        str, Meta(description="File with the token for the service of the setting server.")
    ] = ""
    token: Annotated[
        str,
        Meta(
            description="Token for that service; better in a file. Not an option, because other"
            " users of a machine see the options of a process.",
            extra=SECRET,
        ),
    ] = ""
    ca_file: Annotated[
        str,
        Meta(description="PEM file with the CA of that service; none: the system's."),
    ] = ""
    context: Annotated[
        str, Meta(description="Context of the kubeconfig for commands; none: its current one.")
    ] = ""


CLIENT: Final = ("server", "token_file", "token", "ca_file", "context")
"""The settings that only commands read."""

NO_OPTIONS: Final = ("token",)
"""Settings that no command takes as an option."""
