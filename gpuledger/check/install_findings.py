"""Install findings: the result of each check of an installation, with its remedy."""

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from gpuledger.cli.exit_codes import Exit


class CheckOutcome(StrEnum):
    """How a check ended. A check that could not be asked is never `ok`."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    NOT_ASKED = "not asked"


class InstallFinding(msgspec.Struct, frozen=True):
    """The result of one check: the observation, and the remedy if it is not `ok`."""

    check: str
    outcome: CheckOutcome
    observation: str
    remedy: str = ""


class Unasked(msgspec.Struct, frozen=True):
    """The reason why a question was not asked or not answered, and what would change that."""

    reason: str
    remedy: str = ""


def passed(check: str, observation: str) -> InstallFinding:
    """Return the finding of a check that holds."""
    return InstallFinding(check, CheckOutcome.OK, observation)


def warned(check: str, observation: str, remedy: str) -> InstallFinding:
    """Return the finding of a check that holds with a reservation."""
    return InstallFinding(check, CheckOutcome.WARNING, observation, remedy)


def failed(check: str, observation: str, remedy: str) -> InstallFinding:
    """Return the finding of a check that does not hold."""
    return InstallFinding(check, CheckOutcome.FAILED, observation, remedy)


def not_asked(check: str, unasked: Unasked) -> InstallFinding:
    """Return the finding of a check without an answer."""
    return InstallFinding(check, CheckOutcome.NOT_ASKED, unasked.reason, unasked.remedy)


def after(check: str, cause: InstallFinding) -> InstallFinding:
    """Return the finding of a check that cannot hold because another one failed."""
    return not_asked(check, Unasked(f"{cause.check} failed", f"first the remedy of {cause.check}"))


def have_failed(findings: Iterable[InstallFinding]) -> bool:
    """Return whether any check failed."""
    return any(finding.outcome is CheckOutcome.FAILED for finding in findings)


def exit_status(findings: Iterable[InstallFinding], *, waited: bool) -> Exit:
    """Return the exit code of findings; after a wait, a failure is one of not being ready."""
    if not have_failed(findings):
        return Exit.OK
    return Exit.NOT_READY if waited else Exit.FAILED
