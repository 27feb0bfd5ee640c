"""Store and log: their location, access and size."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ledger.runtime.settings.setting_patterns import (
    DOMAIN_PATTERN,
    HOST_PORT_PATTERN,
    NAME_PATTERN,
    SECRET,
)


class LogSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Store and log: where records are kept, how they are reached, and how large they may
    become."""

    store_dir: Annotated[
        str, Meta(min_length=1, description="Directory of all data of this service.")
    ] = "gpuledger-data"
    listen: Annotated[
        str,
        Meta(
            pattern=HOST_PORT_PATTERN,
            description="HOST:PORT to serve on; [ADDRESS]:PORT for IPv6, port 0 is any free port.",
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
            description="Monitoring URLs of all NATS servers, to check whether they sync to disk.",
            examples=["http://nats-0.example:8222"],
        ),
    ] = ()
    nats_domain: Annotated[
        str,
        Meta(
            pattern=DOMAIN_PATTERN,
            description="JetStream domain of the log, if the servers in nats reach it through a"
            " leaf node; none: they have the log.",
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
        Meta(ge=1024**2, description="Bytes that one namespace may append to the log at once."),
    ] = 256 * 1024**2
    log_namespace_rate: Annotated[
        int,
        Meta(
            ge=1,
            description="Bytes that one namespace may append to the log in the long run, per"
            " second; beyond both, its new reservations are refused (LogShareExceeded).",
        ),
    ] = 32 * 1024
    denials_days: Annotated[
        int, Meta(ge=1, le=3650, description="Time for which denials are stored, days.")
    ] = 30
    snapshot_events: Annotated[
        int,
        Meta(ge=100, le=10_000_000, description="Events between two snapshots of the state."),
    ] = 50_000
