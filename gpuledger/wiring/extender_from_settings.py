"""Extender from settings: how it orders nodes and cards, and how long a bind waits."""

from extender.fit.inventory_fit import FitPreferences
from extender.fit.node_score_expression import NodeScore, NodeScoreError
from extender.scheduler_extender import ExtenderSettings
from gpuledger.cli.exit_codes import CommandError, Exit
from ledger.kube.requests.device_requests import Weights
from ledger.runtime.settings.settings import Settings


def extender_settings(settings: Settings) -> ExtenderSettings:
    """Return the settings of the extender. Raises CommandError for an invalid expression."""
    try:
        score = NodeScore(settings.node_score) if settings.node_score else None
    except NodeScoreError as error:
        raise CommandError(Exit.USAGE, f"node_score: {error}") from error
    weights = Weights(settings.weight_slots, settings.weight_cores, settings.weight_memory)
    preferences = FitPreferences(settings.node_policy, settings.card_policies, weights, score)
    return ExtenderSettings(preferences, settings.bind_wait_seconds)
