# SPDX-License-Identifier: Apache-2.0
"""Trust anchors: the keys that begin the chain of proof for an answer.

The file is a zone file of DS and DNSKEY records, as written by `unbound-anchor` or the package
``dns-root-data``. The default is the two root keys of IANA (key tags 20326 and 38696, from
https://data.iana.org/root-anchors/root-anchors.xml).

Why so: no automatic roll-over (RFC 5011). The root's keys change once in several years, with years
of notice, and a daemon that rewrites its own trust anchors adds a risk. A release contains the next
key; the setting ``resolver.anchors`` replaces the list at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import dns.exception
import dns.name
import dns.rdataclass
import dns.rdatatype
import dns.zonefile
from dns.rdtypes.ANY.DNSKEY import DNSKEY
from dns.rdtypes.ANY.DS import DS

__all__ = ["ROOT_ANCHORS", "Anchors", "TrustAnchor", "parse_anchors", "read_anchors"]

ROOT_ANCHORS: Final = """
. IN DS 20326 8 2 E06D44B80B8F1D39A95C0B0D7C65D08458E880409BBC683457104237C7F8EC8D
. IN DS 38696 8 2 683D2D0ACB8C9B712A1948B27F741219298D0A450D612C483AF444A4C0FB2B16
"""


@dataclass(frozen=True, slots=True)
class TrustAnchor:
    """The trusted keys of one zone: any key that matches one of these records."""

    digests: tuple[DS, ...] = ()
    keys: tuple[DNSKEY, ...] = ()


Anchors = dict[dns.name.Name, TrustAnchor]


def parse_anchors(text: str) -> Anchors:
    """Parse trust anchors.

    Raises:
        ValueError: the text is not a list of DS and DNSKEY records, or is empty.
    """
    try:
        sets = dns.zonefile.read_rrsets(
            text, rdclass=None, default_ttl=0, origin=dns.name.root, relativize=False
        )
    except (dns.exception.DNSException, ValueError) as error:
        raise ValueError(f"not a list of DS and DNSKEY records: {error}") from error
    anchors: Anchors = {}
    for rrset in sets:
        if rrset.rdclass != dns.rdataclass.IN or rrset.rdtype not in (
            dns.rdatatype.DS,
            dns.rdatatype.DNSKEY,
        ):
            kind = dns.rdatatype.to_text(rrset.rdtype)
            raise ValueError(f"{rrset.name}: a trust anchor is a DS or DNSKEY record, not {kind}")
        name = rrset.name.canonicalize()
        known = anchors.get(name, TrustAnchor())
        anchors[name] = TrustAnchor(
            known.digests + tuple(each for each in rrset if isinstance(each, DS)),
            known.keys + tuple(each for each in rrset if isinstance(each, DNSKEY)),
        )
    if not anchors:
        raise ValueError("there is no trust anchor in it")
    return anchors


def read_anchors(path: Path | None = None) -> Anchors:
    """Read the anchors from a file, or the default ones.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is not a list of anchors.
    """
    if path is None:
        return parse_anchors(ROOT_ANCHORS)
    return parse_anchors(path.read_text(encoding="utf-8"))
