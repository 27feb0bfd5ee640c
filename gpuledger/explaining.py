"""Explaining from a command: the validating webhook's own judgement, on a log that is only read."""

import sys
from pathlib import Path
from typing import Final

import msgspec
import yaml

from gpuledger import wiring
from gpuledger.deciding import writer_on
from gpuledger.exits import Exit, Stop
from gpuledger.finding import log_of
from ledger.core.denials import Reason
from ledger.runtime.settings import Settings
from webhook import explaining
from webhook.explaining import Explanation
from webhook.review import BadReview
from webhook.stamps import Stamps
from webhook.validating import Validating

_STANDARD_INPUT: Final = "-"


async def explain(settings: Settings, file: str, namespace: str, username: str) -> Explanation:
    """Explain the review or pod in a file. Raises Stop, and what opening the log raises."""
    body = _read(file, settings.review_bytes_max)
    rules = wiring.demand_rules(settings)
    async with log_of(settings) as found, writer_on(settings, found) as writer:
        validating = Validating(
            writer,
            settings.cluster,
            rules,
            wiring.policy(settings),
            _stamps(settings),
            wiring.surroundings(settings, writer),
        )
        try:
            explained = await explaining.explain(
                validating,
                body,
                deadline=settings.admission_deadline_seconds,
                namespace=namespace,
                username=username,
            )
        except BadReview as error:
            raise Stop(Exit.USAGE, f"{file}: {error}") from error
    denial = explained.denial
    if denial is not None and denial.reason is Reason.LEDGER_UNAVAILABLE:
        raise Stop(Exit.UNREACHABLE, explained.answer)
    return explained


def _stamps(settings: Settings) -> Stamps:
    try:
        return Stamps(wiring.stamp_key(settings))
    except OSError as error:
        raise Stop(Exit.USAGE, str(error)) from error


def _read(file: str, bytes_max: int) -> bytes:
    """Return a file's content as JSON; YAML is turned into it. Raises Stop naming the file."""
    try:
        if file == _STANDARD_INPUT:
            content = sys.stdin.buffer.read(bytes_max + 1)
        else:
            with Path(file).open("rb") as opened:
                content = opened.read(bytes_max + 1)
    except OSError as error:
        raise Stop(Exit.USAGE, f"{file} cannot be read: {error.strerror}") from error
    if len(content) > bytes_max:
        raise Stop(Exit.USAGE, f"{file} has more than {bytes_max} bytes (setting review_bytes_max)")
    if content.lstrip().startswith(b"{"):
        return content
    try:
        _refuse_aliases(content, file)
        return msgspec.json.encode(yaml.safe_load(content))
    except (yaml.YAMLError, TypeError, UnicodeDecodeError) as error:
        raise Stop(Exit.USAGE, f"{file} is neither JSON nor YAML: {error}") from error
    except RecursionError as error:
        raise Stop(Exit.USAGE, f"{file} is nested too deeply for a Pod") from error


def _refuse_aliases(content: bytes, file: str) -> None:
    """Refuse what some hundred bytes of YAML can make gigabytes of. Raises Stop, YAMLError."""
    for event in yaml.parse(content, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise Stop(Exit.USAGE, f"{file}: write *{event.anchor} out, aliases are not read")
