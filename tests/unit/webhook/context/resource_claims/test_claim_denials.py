"""The sentences about device classes that cannot be charged."""

from ledger.core.model.denials import sentence
from ledger.kube.resource_claims.device_classes import Unmapped
from webhook.context.resource_claims.claim_denials import unmapped_denial

FIELD = "spec.devices.requests"


def test_a_class_that_exists_is_refused_with_its_cause_and_remedy() -> None:
    why = "selects the driver gpu.example.com, which is not mapped"
    denial = unmapped_denial(FIELD, [Unmapped("odd", why)])
    assert (denial.field, denial.value) == (FIELD, "odd")
    assert sentence(denial) == (
        f"DeviceClass odd {why}, so its devices cannot be charged. Name a class that is mapped. An"
        " operator maps it in device_classes_file, lists it in other_device_classes if it selects"
        " no GPUs, or sets unmappedDeviceClasses to warn. [UnmappedDeviceClass]"
    )


def test_a_missing_class_is_refused_with_another_remedy() -> None:
    gone = [Unmapped(f"gone{number}", "does not exist", exists=False) for number in range(6)]
    assert sentence(unmapped_denial(FIELD, gone)) == (
        "DeviceClass gone0 does not exist, so its devices cannot be charged; nor can those of"
        " gone1, gone2, gone3 and 2 more. Create this DeviceClass, or name one that exists."
        " [UnmappedDeviceClass]"
    )
