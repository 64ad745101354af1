# SPDX-License-Identifier: Apache-2.0
"""Proofs about a name by validated NSEC and NSEC3 records (RFC 4035 §5.4, RFC 5155 §8). Pure.

The records are given as owner and rdata; the caller has checked their signatures. `NsecDenial`
answers three questions about a name of their zone: does it lack a type, does it not exist, and, at
a zone cut, what kind of cut is it? If the records do not prove it, the answer is no.
"""

from __future__ import annotations

import base64
import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import dns.dnssec
import dns.name
import dns.rdatatype
from dns.rdatatype import RdataType
from dns.rdtypes.ANY.NSEC import NSEC
from dns.rdtypes.ANY.NSEC3 import NSEC3

__all__ = ["DenialTooCostly", "NsecDenial", "ZoneCut"]

MAX_ITERATIONS: Final = 100
"""NSEC3 with more hash iterations proves nothing here (RFC 9276 §3.2)."""

MAX_RECORDS: Final = 12
"""Denial records considered; a proof needs three."""

_OPT_OUT: Final = 1
_SHA1: Final = 1  # the only hash of NSEC3 (RFC 5155 §11)
_DNAME: Final = dns.rdatatype.DNAME


class DenialTooCostly(Exception):
    """The zone requires too much hashing: it counts as not signed."""


class ZoneCut(enum.Enum):
    """The meaning of the absence of DS records at a name."""

    NONE = "no cut"
    """The name is inside its parent's zone."""

    INSECURE = "insecure"
    """Another zone begins here, and it is not signed."""

    NO_NAME = "no name"
    """The name does not exist, so no zone begins here or below."""

    UNPROVED = "unproved"
    """The records do not prove it."""


@dataclass(frozen=True, slots=True)
class _Hashed:
    """One NSEC3 record."""

    begin: str
    end: str
    rdata: NSEC3


class NsecDenial:
    """Proofs of absence from one response.

    Args:
        zone: the zone of the records.
        nsec: owners and records.
        nsec3: owners and records.

    Raises:
        DenialTooCostly: the zone requires too many hash iterations.
    """

    def __init__(
        self,
        zone: dns.name.Name,
        nsec: Iterable[tuple[dns.name.Name, NSEC]],
        nsec3: Iterable[tuple[dns.name.Name, NSEC3]],
    ) -> None:
        self._zone = zone
        self._nsec = list(nsec)[:MAX_RECORDS]
        self._nsec3: list[_Hashed] = []
        self._hashes: dict[dns.name.Name, str] = {}
        for owner, rdata in list(nsec3)[:MAX_RECORDS]:
            if rdata.algorithm != _SHA1 or rdata.flags & ~_OPT_OUT:
                continue  # RFC 5155 §8.1, §8.2: to be ignored
            if rdata.iterations > MAX_ITERATIONS:
                raise DenialTooCostly
            if owner.parent() == zone:
                begin = owner.labels[0].decode("ascii", "replace").upper()
                end = base64.b32hexencode(rdata.next).decode("ascii").rstrip("=")
                self._nsec3.append(_Hashed(begin, end, rdata))

    def no_data(self, name: dns.name.Name, rdtype: RdataType) -> bool:
        """Return whether it is proved that `name` exists and has no record of this type."""
        for owner, rdata in self._nsec:
            if owner == name:
                return _lacks(rdata, rdtype)
            if self._covers(owner, rdata, name) and rdata.next.is_subdomain(name):
                return True  # an empty non-terminal: names below it, nothing at it
        match = self._match(name)
        if match is not None:
            return _lacks(match.rdata, rdtype)
        return self._wildcard_no_data(name, rdtype)

    def no_name(self, name: dns.name.Name) -> bool:
        """Return whether it is proved that `name` does not exist, not even by a wildcard."""
        for owner, rdata in self._nsec:
            if self._covers(owner, rdata, name) and not rdata.next.is_subdomain(name):
                closest = _closest_encloser(owner, rdata.next, name)
                wildcard = dns.name.Name((b"*", *closest.labels))
                return any(self._covers(begin, each, wildcard) for begin, each in self._nsec)
        found = self._closest(name)
        if found is None:
            return False
        return self._cover(dns.name.Name((b"*", *found[0].labels))) is not None

    def no_closer_match(self, name: dns.name.Name, labels: int) -> bool:
        """Return whether a wildcard answer is valid: no name exists between wildcard and `name`.

        Args:
            name: the owner of the answer.
            labels: number of labels of the wildcard without its asterisk, as in the RRSIG, without
                the root.
        """
        if any(self._covers(owner, rdata, name) for owner, rdata in self._nsec):
            return True
        return self._cover(dns.name.Name(name.labels[-(labels + 2) :])) is not None

    def cut(self, name: dns.name.Name) -> ZoneCut:
        """Return the meaning of the absence of DS records at `name`."""
        for owner, rdata in self._nsec:
            if owner == name:
                return _cut_of(rdata)
            if self._covers(owner, rdata, name):
                return ZoneCut.NONE if rdata.next.is_subdomain(name) else ZoneCut.NO_NAME
        match = self._match(name)
        if match is not None:
            return _cut_of(match.rdata)
        found = self._closest(name)
        if found is None:
            return ZoneCut.UNPROVED
        # Opt-out: an unsigned zone may begin here and need not be listed (RFC 5155 §6).
        return ZoneCut.INSECURE if found[1].rdata.flags & _OPT_OUT else ZoneCut.NO_NAME

    def _wildcard_no_data(self, name: dns.name.Name, rdtype: RdataType) -> bool:
        """A wildcard covers the name and has nothing of this type (RFC 5155 §8.7)."""
        for owner, rdata in self._nsec:
            if not owner.is_wild() or not _lacks(rdata, rdtype):
                continue
            if name.is_subdomain(owner.parent()) and any(
                self._covers(begin, each, name) for begin, each in self._nsec
            ):
                return True
        found = self._closest(name)
        if found is None:
            return False
        closest, cover = found
        wildcard = self._match(dns.name.Name((b"*", *closest.labels)))
        if wildcard is not None:
            return _lacks(wildcard.rdata, rdtype)
        # With opt-out, the absence of DS at a name proves nothing else.
        return rdtype == dns.rdatatype.DS and bool(cover.rdata.flags & _OPT_OUT)

    def _covers(self, owner: dns.name.Name, rdata: NSEC, name: dns.name.Name) -> bool:
        """Whether `name` lies between an NSEC record and the next one."""
        if not name.is_subdomain(self._zone) or not owner.is_subdomain(self._zone):
            return False
        if name.is_subdomain(owner) and (_delegates(rdata) or _DNAME in _types(rdata)):
            return False  # it belongs to the parent only (RFC 6840 §4.1)
        return bool(owner < name and (name < rdata.next or rdata.next == self._zone))

    def _closest(self, name: dns.name.Name) -> tuple[dns.name.Name, _Hashed] | None:
        """The closest encloser of a name, and what covers the next closer one (RFC 5155 §8.3)."""
        next_closer = name
        while next_closer != self._zone and next_closer != dns.name.root:
            candidate = next_closer.parent()
            match = self._match(candidate)
            if match is not None:
                if _delegates(match.rdata) and candidate != self._zone:
                    return None  # from the parent side of a zone cut
                cover = self._cover(next_closer)
                return None if cover is None else (candidate, cover)
            next_closer = candidate
        return None

    def _match(self, name: dns.name.Name) -> _Hashed | None:
        if not self._nsec3:
            return None
        hashed = self._hash(name)
        return next((each for each in self._nsec3 if each.begin == hashed), None)

    def _cover(self, name: dns.name.Name) -> _Hashed | None:
        if not self._nsec3:
            return None
        hashed = self._hash(name)
        for each in self._nsec3:
            if each.begin < each.end:
                if each.begin < hashed < each.end:
                    return each
            elif hashed > each.begin or hashed < each.end:  # the last one of the zone
                return each
        return None

    def _hash(self, name: dns.name.Name) -> str:
        known = self._hashes.get(name)
        if known is None:
            one = self._nsec3[0].rdata
            known = dns.dnssec.nsec3_hash(name, one.salt, one.iterations, one.algorithm).upper()
            self._hashes[name] = known
        return known


def _types(rdata: NSEC | NSEC3) -> set[int]:
    found: set[int] = set()
    for window, bitmap in rdata.windows:
        for index, octet in enumerate(bitmap):
            found.update(
                window * 256 + index * 8 + bit for bit in range(8) if octet & (0x80 >> bit)
            )
    return found


def _lacks(rdata: NSEC | NSEC3, rdtype: RdataType) -> bool:
    types = _types(rdata)
    if rdtype != dns.rdatatype.DS and _delegates(rdata):
        return False  # the parent's record does not cover the child's types
    if rdtype == dns.rdatatype.DS and dns.rdatatype.SOA in types:
        return False  # the child's record does not cover DS, which is at the parent
    return rdtype not in types and dns.rdatatype.CNAME not in types


def _delegates(rdata: NSEC | NSEC3) -> bool:
    types = _types(rdata)
    return dns.rdatatype.NS in types and dns.rdatatype.SOA not in types


def _cut_of(rdata: NSEC | NSEC3) -> ZoneCut:
    types = _types(rdata)
    if dns.rdatatype.SOA in types or dns.rdatatype.DS in types:
        return ZoneCut.UNPROVED  # from below the cut, or it contradicts the question
    return ZoneCut.INSECURE if dns.rdatatype.NS in types else ZoneCut.NONE


def _closest_encloser(
    owner: dns.name.Name, following: dns.name.Name, name: dns.name.Name
) -> dns.name.Name:
    """Return the longest existing ancestor of a name that lies between two neighbors."""

    def shared(other: dns.name.Name) -> int:
        return name.fullcompare(other)[2]

    longest = max(shared(owner), shared(following))
    return dns.name.Name(name.labels[-longest:])
