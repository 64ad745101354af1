# SPDX-License-Identifier: Apache-2.0
"""A small signed tree of zones, with its own keys, for DNSSEC tests.

`SignedTree` has the root, ``example.`` below it, and the zones of a test below that; parents get
delegations, and DS records for signed children. `SignedTree.anchors` are the trust anchors for a
validator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dns.dnssec
import dns.name
import dns.rdataclass
import dns.rdatatype
import dns.zone
from cryptography.hazmat.primitives.asymmetric import ed25519

from amqproute.resolver.anchors import Anchors, parse_anchors
from amqproute.resolver.zone import ZoneAuthority

NOW = 1_800_000_000.0
"""The time of the tests."""

HOUR = 3600

HEAD = (
    "$ORIGIN {}\n$TTL 300\n@ SOA ns.invalid. hostmaster.invalid. 1 3600 600 86400 60\n"
    "@ NS ns.invalid.\n"
)

Key = tuple[Any, Any]


def make_key(number: int) -> Key:
    """Make a key, the same one in each run."""
    private = ed25519.Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32)
    flags = dns.dnssec.Flag.ZONE | dns.dnssec.Flag.SEP
    public = dns.dnssec.make_dnskey(private.public_key(), dns.dnssec.Algorithm.ED25519, flags)
    return private, public


def ds_text(origin: str, key: Key) -> str:
    """The DS record of a key, as text without an owner."""
    return str(dns.dnssec.make_ds(dns.name.from_text(origin), key[1], "SHA256").to_text())


def sign(
    text: str, key: Key, *, begins: float = NOW - HOUR, ends: float = NOW + 24 * HOUR
) -> dns.zone.Zone:
    """Make a signed zone."""
    zone = dns.zone.from_text(text, relativize=False, check_origin=False)
    dns.dnssec.sign_zone(zone, keys=[key], inception=begins, expiration=ends)
    return zone


class SignedTree:
    """Root, ``example.``, and the zones of a test below that.

    Args:
        zones: origin without the final dot to the records of the zone.
        unsigned: origins that are not signed, and so have no DS record.
        wrong_ds: origins whose DS record is that of another key.
        expired: origins whose signatures are too old.
        now: time of signing.

    Attributes:
        anchors: trust anchors for a validator.
        anchor_text: the same in the format of a file.
        authority: serves the zones.
    """

    def __init__(
        self,
        zones: dict[str, str],
        *,
        unsigned: tuple[str, ...] = (),
        wrong_ds: tuple[str, ...] = (),
        expired: tuple[str, ...] = (),
        now: float = NOW,
    ) -> None:
        origins = ["", "example", *(name for name in zones if name not in ("", "example"))]
        self.keys = {name: make_key(number) for number, name in enumerate(origins, 1)}
        self.anchor_text = f". IN DS {ds_text('.', self.keys[''])}\n"
        self.anchors: Anchors = parse_anchors(self.anchor_text)
        self._now = now
        self.zones: dict[str, dns.zone.Zone] = {}
        for name in origins:
            text = HEAD.format(f"{name}.") + zones.get(name, "")
            for child in origins:
                if not child or child == name or _parent(child, origins) != name:
                    continue
                text += f"{child}. NS ns.invalid.\n"
                if child not in unsigned:
                    key = make_key(200) if child in wrong_ds else self.keys[child]
                    text += f"{child}. DS {ds_text(child + '.', key)}\n"
            if name in unsigned:
                self.zones[name] = dns.zone.from_text(text, relativize=False, check_origin=False)
            else:
                ends = now - 60 if name in expired else now + 24 * HOUR
                self.zones[name] = self._sign(name, text, ends)
        self.authority = ZoneAuthority(self.zones.values())

    def replace(
        self,
        name: str,
        records: str,
        ttl: int = 300,
        change: Callable[[dns.zone.Zone], object] = lambda _: None,
    ) -> None:
        """Sign and serve other records of a zone without children.

        Args:
            name: its origin.
            records: its records besides SOA and NS.
            ttl: of them.
            change: applied to the zone after signing, before it is served.
        """
        text = HEAD.format(f"{name}.").replace("$TTL 300", f"$TTL {ttl}") + records
        zone = self._sign(name, text, self._now + 24 * HOUR)
        change(zone)
        self.zones[name] = zone
        self.authority.set_zone(zone)

    def _sign(self, name: str, text: str, ends: float) -> dns.zone.Zone:
        return sign(text, self.keys[name], begins=self._now - HOUR, ends=ends)


def _parent(name: str, origins: list[str]) -> str:
    while name:
        name = name.partition(".")[2]
        if name in origins:
            return name
    return ""


__all__ = ["HEAD", "HOUR", "NOW", "SignedTree", "ds_text", "make_key", "sign"]
