"""Trusted authorities: the CAs in a caBundle while replicas may have different ones.

Each replica's own CAs are always in the bundle. Another CA stays while a replica claims it, and for
`KEPT_SECONDS` after the last claim. A claim is an annotation of the configuration, whose value a
replica with that CA changes every `CLAIM_SECONDS`. Each replica measures by its own clock for how
long a claim has not changed, so their clocks may differ. With one CA there are no claims.
"""

import base64
import binascii
import functools
import hashlib
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

CLAIM: Final = "authority.gpuledger.io/"
"""Prefix of the annotations; a CA's fingerprint follows, and the value is the time of the claim."""

CLAIM_SECONDS: Final = 60.0
KEPT_SECONDS: Final = 600.0
"""Longer than a replica needs to start, and than the kubelet needs to update a mounted Secret."""

OTHERS_MAX: Final = 8
"""Bound of the CAs besides the own ones, because every webhook has a copy of the bundle."""

_FINGERPRINT_DIGITS: Final = 32

Authorities = dict[str, x509.Certificate]
"""CAs by their fingerprints."""


def read(bundle: str) -> Authorities:
    """Return the CAs of a caBundle, base64 of PEM; none for another content."""
    return dict(_read(bundle))


@functools.lru_cache(maxsize=64)
def _read(bundle: str) -> Authorities:
    try:
        loaded = x509.load_pem_x509_certificates(base64.b64decode(bundle, validate=True))
    except (binascii.Error, ValueError, x509.InvalidVersion):
        return {}
    return {_fingerprint(authority): authority for authority in loaded}


def joined(own: str, others: Authorities) -> str:
    """Return the caBundle of the own CAs and others; all replicas write it in one order."""
    if not others:
        return own
    both = {**read(own), **others}
    pem = b"".join(both[name].public_bytes(Encoding.PEM) for name in sorted(both))
    return base64.b64encode(pem).decode()


def others(own: str, bundles: Iterable[str], claims: Mapping[str, str]) -> Authorities:
    """Return the other CAs that have not ended: those in all bundles, and the claimed ones.

    A CA of some of the bundles that is not claimed comes from an edit of these.
    """
    parsed = [read(bundle) for bundle in bundles]
    now, mine = datetime.now(UTC), read(own)
    return {
        name: authority
        for each in parsed
        for name, authority in each.items()
        if name not in mine
        and now < authority.not_valid_after_utc
        and (name in claims or all(name in bundle for bundle in parsed))
    }


class TrustChange(NamedTuple):
    """The CAs that a configuration should have now, and the changed annotations; None removes one.

    `own` is the bundle of the own CAs, and `bundle` that with the others.
    """

    own: str
    bundle: str
    annotations: dict[str, str | None]

    def bundle_for(self, present: str, *, drops: bool) -> str:
        """Return the right bundle: the present text if that has the right CAs.

        With `drops` these are exactly those of `bundle`, else at least the own ones.
        """
        has, own = read(present), read(self.own)
        is_right = bool(own) and has == read(self.bundle) if drops else own.keys() <= has.keys()
        return present if is_right else self.bundle


class AuthorityClaims:
    """The claims of one configuration, and for how long this replica has seen each unchanged."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` returns seconds."""
        self._clock = clock
        self._seen: dict[str, tuple[str, float]] = {}

    def change(
        self, own: str, bundles: Iterable[str], annotations: Mapping[str, str], *, drops: bool
    ) -> TrustChange:
        """Return the change of a configuration; with `drops`, without the unclaimed other CAs."""
        claims, mine = claims_of(annotations), read(own)
        # Without a bundle, the API server trusts the system's CAs: another CA would replace them.
        candidates = others(own, bundles, claims) if own else {}
        self.look(claims, mine, candidates)
        kept = self.kept(candidates) if drops else candidates
        needed = {*mine, *kept} if kept else set()
        changed: dict[str, str | None] = dict.fromkeys(
            CLAIM + name for name in claims if drops and name not in needed
        )
        if kept:
            changed |= claimed(self.due(mine))
        return TrustChange(own, joined(own, kept), changed)

    def look(self, claims: Mapping[str, str], own: Authorities, others: Authorities) -> None:
        """Compare the claims of the present CAs with those of the last look.

        An own CA without a claim is needed now, because other replicas claim it for the first time
        after this one has switched to another.
        """
        now, before = self._clock(), self._seen
        self._seen = {}
        for name in (*own, *others):
            claim = claims.get(name, "")
            known = before.get(name)
            is_unchanged = known is not None and known[0] == claim and (claim or name not in own)
            self._seen[name] = known if known is not None and is_unchanged else (claim, now)

    def kept(self, candidates: Authorities) -> Authorities:
        """Return the CAs whose last claim is not too old, the latest ones up to the bound."""
        now = self._clock()
        latest = sorted(candidates, key=lambda name: -self._seen[name][1])[:OTHERS_MAX]
        return {
            name: candidates[name] for name in latest if now - self._seen[name][1] < KEPT_SECONDS
        }

    def due(self, own: Iterable[str]) -> list[str]:
        """Return the own CAs that have to be claimed now."""
        now = self._clock()
        return [
            name
            for name in own
            if not self._seen[name][0] or now - self._seen[name][1] >= CLAIM_SECONDS
        ]


def claims_of(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return the claims in a configuration's annotations by the fingerprints."""
    return {
        name.removeprefix(CLAIM): annotations[name]
        for name in annotations
        if name.startswith(CLAIM)
    }


def claimed(names: Iterable[str]) -> dict[str, str]:
    """Return the annotations that claim CAs now."""
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
    return {f"{CLAIM}{name}": now for name in names}


def _fingerprint(authority: x509.Certificate) -> str:
    content = authority.public_bytes(Encoding.DER)
    return hashlib.sha256(content).hexdigest()[:_FINGERPRINT_DIGITS]
