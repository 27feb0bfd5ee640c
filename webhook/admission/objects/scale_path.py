"""What an object would be if it were scaled: a review of its scale says the number and no more."""

import msgspec

from ledger.kube.api.objects import Workload
from webhook.kinds.schema import WorkloadKind
from webhook.kinds.values import Json


def with_replicas(kind: WorkloadKind, workload: Workload, replicas: int) -> Workload:
    """Return the object with another number at the field that its scale changes.

    Its generation goes up, as it will when the API server has written it. The object stays as it
    is. Raises ValueError when the kind has no scale.
    """
    if kind.scale is None:
        raise ValueError(f"{kind.name} has no scale: its kind says no field for it")
    spec = _with(workload.spec, kind.scale.before[1:], replicas)
    metadata = msgspec.structs.replace(
        workload.metadata, generation=workload.metadata.generation + 1
    )
    return msgspec.structs.replace(workload, metadata=metadata, spec=spec)


def _with(value: Json, steps: tuple[str, ...], number: int) -> Json:
    """Return a copy of an object in which the field that steps lead to is a number."""
    if not steps:
        return number
    members = value if isinstance(value, dict) else {}
    return {**members, steps[0]: _with(members.get(steps[0]), steps[1:], number)}
