"""Object admission: the parts with which the webhook decides about each type of object."""

from webhook.admission.claim_checks import ClaimChecks
from webhook.admission.claim_ownership import ClaimOwnership
from webhook.admission.leaving_quotas import QuotaMembership
from webhook.admission.reservation_client import ReservationClient
from webhook.admission.write_attempts import WriteAttempts
from webhook.context.admission_settings import AdmissionSettings
from webhook.context.cluster_context import ClusterContext


class ObjectAdmission:
    """The base of the decisions about the objects of one cluster."""

    def __init__(
        self,
        reservations: ReservationClient,
        *,
        attempts: WriteAttempts,
        settings: AdmissionSettings,
        context: ClusterContext,
    ) -> None:
        self._reservations = reservations
        self._attempts = attempts
        self._settings = settings
        self._context = context
        self._store = context.resource_claims
        self._claims = ClaimChecks(context.resource_claims)
        self._ownership = ClaimOwnership(settings, context)
        self._quota_membership = QuotaMembership(context)
