"""Protobuf fields: the numbers that Kubernetes gives to the fields of the objects of this folder.

The structs of `objects` decide which fields are read, with which types and defaults, in JSON and in
protobuf. This table adds only the numbers, from `generated.proto` of `k8s.io/api/core/v1` and
`k8s.io/apimachinery/pkg/apis/meta/v1`, where the fields have their JSON names. A struct with a
field that has no number here is read from no protobuf.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from ledger.kube.api.objects import (
    Affinity,
    AffinityTerm,
    AnySelector,
    ApiStatus,
    Bookmark,
    Container,
    ContainerState,
    ContainerStatus,
    ExtendedResourceClaimStatus,
    ExtendedResourceRequest,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodAffinity,
    PodResourceClaim,
    PodResourceClaimStatus,
    PodSpec,
    PodStatus,
    Resources,
    Running,
    SchedulingGate,
    SecurityContext,
    StatusCause,
    StatusDetails,
    Terminated,
    WeightedAffinityTerm,
)

Number = int | tuple[int, int]
"""A field's number; with that of a field of its elements where JSON has this field's content as the
element: an ephemeral container is a container in JSON, and has one in protobuf."""

NUMBERS: Final[Mapping[type[msgspec.Struct], Mapping[str, Number]]] = {
    ObjectMeta: {
        "name": 1,
        "generateName": 2,
        "namespace": 3,
        "uid": 5,
        "resourceVersion": 6,
        "generation": 7,
        "creationTimestamp": 8,
        "deletionTimestamp": 9,
        "deletionGracePeriodSeconds": 10,
        "labels": 11,
        "annotations": 12,
        "ownerReferences": 13,
    },
    OwnerReference: {"kind": 1, "name": 3, "uid": 4, "apiVersion": 5, "controller": 6},
    Pod: {"metadata": 1, "spec": 2, "status": 3},
    PodSpec: {
        "containers": 2,
        "activeDeadlineSeconds": 5,
        "nodeName": 10,
        "affinity": 18,
        "schedulerName": 19,
        "initContainers": 20,
        "priorityClassName": 24,
        "priority": 25,
        "preemptionPolicy": 31,
        "overhead": 32,
        "ephemeralContainers": (34, 1),
        "schedulingGates": 38,
        "resourceClaims": 39,
        "resources": 40,
    },
    Container: {"name": 1, "resources": 8, "securityContext": 15, "restartPolicy": 24},
    Resources: {"limits": 1, "requests": 2},
    SecurityContext: {"privileged": 2},
    Affinity: {"podAffinity": 2, "podAntiAffinity": 3},
    PodAffinity: {
        "requiredDuringSchedulingIgnoredDuringExecution": 1,
        "preferredDuringSchedulingIgnoredDuringExecution": 2,
    },
    WeightedAffinityTerm: {"podAffinityTerm": 2},
    AffinityTerm: {"namespaces": 2, "namespaceSelector": 4},
    AnySelector: {},
    SchedulingGate: {"name": 1},
    PodResourceClaim: {"name": 1, "resourceClaimName": 3, "resourceClaimTemplateName": 4},
    PodStatus: {
        "phase": 1,
        "containerStatuses": 8,
        "initContainerStatuses": 10,
        "resourceClaimStatuses": 15,
        "extendedResourceClaimStatus": 18,
    },
    PodResourceClaimStatus: {"name": 1, "resourceClaimName": 2},
    ExtendedResourceClaimStatus: {"requestMappings": 1, "resourceClaimName": 2},
    ExtendedResourceRequest: {"containerName": 1, "resourceName": 2, "requestName": 3},
    ContainerStatus: {"name": 1, "state": 2, "started": 9},
    ContainerState: {"running": 2, "terminated": 3},
    Running: {},
    Terminated: {"exitCode": 1},
    Bookmark: {"metadata": 1},
    ApiStatus: {"message": 3, "reason": 4, "details": 5, "code": 6},
    StatusDetails: {"name": 1, "causes": 4},
    StatusCause: {"reason": 1, "message": 2},
}
