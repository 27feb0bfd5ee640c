"""Demand rules from settings: how requests of pods and resource claims become amounts of cards."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from gpuledger.cli.exit_codes import CommandError, Exit
from ledger.kube.requests import gpu_type_annotation
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.resource_claims import device_classes
from ledger.kube.resource_claims.device_classes import BadDeviceClasses, ClassMapping
from ledger.kube.vendors import vendor_files, vendors
from ledger.runtime.settings.settings import Settings

_NVIDIAS: Final = ("memory_factor", "default_memory", "default_cores", "default_count")
"""Settings of nvidia's cards, named as the fields of its `Vendor`."""


def demand_rules(settings: Settings) -> DemandRules:
    """Return how requests become amounts.

    Raises CommandError naming a vendor, a file of vendors or a type of card that cannot be used.
    """
    try:
        own = vendor_files.load(Path(settings.vendors_file)) if settings.vendors_file else ()
        rules = DemandRules(
            vendors=vendors.select_vendors(settings.vendors, own),
            types=gpu_type_annotation.parse_types(settings.gpu_types),
            type_annotations=settings.gpu_type_annotations,
            worst_card_memory=settings.worst_card_memory or None,
            managed=settings.managed_resources,
        )
    except ValueError as error:
        raise CommandError(Exit.USAGE, str(error)) from error
    _check_units(settings, own)
    nvidia = msgspec.structs.replace(
        vendors.NVIDIA,
        memory_factor=settings.memory_factor,
        default_memory=settings.default_memory,
        default_cores=settings.default_cores,
        default_count=settings.default_count,
    )
    return msgspec.structs.replace(
        rules,
        vendors=tuple(nvidia if vendor is vendors.NVIDIA else vendor for vendor in rules.vendors),
    )


def class_mapping(settings: Settings) -> ClassMapping:
    """Return which device classes and drivers have GPUs.

    Raises as `demand_rules`, and CommandError naming a file of device classes that cannot be used.
    """
    file = settings.device_classes_file
    try:
        return device_classes.class_mapping(
            Path(file) if file else None,
            vendors=demand_rules(settings).vendors,
            other_classes=settings.other_device_classes,
        )
    except BadDeviceClasses as error:
        raise CommandError(Exit.USAGE, str(error)) from error


def _check_units(settings: Settings, own: Sequence[vendors.Vendor]) -> None:
    """Raise CommandError where settings of nvidia's cards would have no effect beside a file's
    entry."""
    if all(vendor.name != vendors.NVIDIA.name for vendor in own):
        return
    for name in _NVIDIAS:
        if getattr(settings, name) != getattr(vendors.NVIDIA, name):
            raise CommandError(
                Exit.USAGE,
                f"{name} {getattr(settings, name)} has no effect, since {settings.vendors_file} has"
                f" an entry nvidia: leave {name} out, and write {_camel(name)} into the entry",
            )


def _camel(field: str) -> str:
    """Return a field's name as a file of vendors has it."""
    first, *others = field.split("_")
    return first + "".join(word.title() for word in others)
