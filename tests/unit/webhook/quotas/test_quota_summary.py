"""The summary of a universe quota, for the column of `kubectl get`."""

from webhook.quotas.universe_quota_status import SUMMARY_MAX, summary


def test_summary_has_used_and_limit_of_each_resource() -> None:
    hard = {"limits.nvidia.com/gpumem": "16000", "limits.nvidia.com/gpu": "4"}
    used = {"limits.nvidia.com/gpumem": "8000", "limits.nvidia.com/gpu": "2"}
    assert summary(used, hard) == "gpu: 2/4, gpumem: 8000/16000"


def test_long_summary_is_as_long_as_the_definition_allows() -> None:
    """The API server refuses a status with a longer one."""
    hard = {f"limits.nvidia.com/r{number}": "1" for number in range(200)}
    text = summary(hard, hard)
    assert (len(text), text[-1]) == (SUMMARY_MAX, "…")
