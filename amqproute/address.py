# SPDX-License-Identifier: Apache-2.0
"""Addresses: ``node``, ``node@domain`` and ``@domain``.

An address is split at its *last* at sign. The part before it is the node: case-sensitive, any
Unicode, at most 1024 octets of UTF-8. The part after it is the domain: a DNS name, compared and
kept as lower-case A-labels without the final dot, so that ``orders@Bücher.example.`` and
``orders@xn--bcher-kva.example`` are one address. Without an at sign the address names a node of
this container. ``@domain`` means every node of that domain; ``node@`` is refused, because it is
typical of a program that has lost the domain.

Why so: a port or an IP address is no part of an address. The location of a domain is up to the DNS
or a route, and may change; the address may not.

`parse` runs for each routed message. Plain ASCII domains never reach the IDNA tables, and the last
few thousand addresses are cached; the cache is bounded because an accepted address is short and a
refused one is not kept.

Nodes of a virtual host are ``//HOST/NAME`` within the broker, in its store, its journal and for its
operators (`in_host`). `parse` refuses an address that begins with two slashes: clients of a virtual
host use the bare names, and nobody else can reach its nodes.

Standard library only, apart from `idna`, whose tables the standard library's own codec lacks
(it still speaks IDNA 2003).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from urllib.parse import unquote_to_bytes

import idna

from amqproute.errors import InvalidField, NotAllowed

__all__ = [
    "MAX_DOMAIN_OCTETS",
    "MAX_NODE_OCTETS",
    "PROBE_NODE",
    "ROOT_HOST",
    "TRANSFER_NODE",
    "Address",
    "check_new_name",
    "exchange_node",
    "format",
    "from_compatibility",
    "from_exchange_address",
    "from_uri",
    "host_label",
    "host_named",
    "host_of",
    "in_host",
    "is_reserved",
    "local_name",
    "node_of_rules",
    "normalize_domain",
    "parse",
    "placed_in",
    "split_host",
]

MAX_NODE_OCTETS: Final = 1024
"""The longest node name in octets of UTF-8. The draft allows 2 GB, which nobody uses."""

MAX_DOMAIN_OCTETS: Final = 253
"""The longest domain in its A-label text form (RFC 1035 §2.3.4, less the root's two octets)."""

MAX_LABEL_OCTETS: Final = 63

TRANSFER_NODE: Final = "amqp$transfer"
"""The node at which every broker accepts messages for other nodes and other brokers."""
PROBE_NODE: Final = "amqp$probe"
"""The node at which an amqproute predicts the fate of a peer's message."""

_REMEMBERED: Final = 4096

_RESERVED: Final = ("amqp$", "$management", "/management")

_COMPATIBILITY: Final = ("/queues/", "/topics/")
_EXCHANGES: Final = "/exchanges/"
_SCHEMES: Final = ("amqp://", "amqps://")
_HOSTS: Final = "//"

ROOT_HOST: Final = "/"
"""The name of the default virtual host for operators and clients; `in_host` uses ""."""

# Letters, digits and hyphens, no hyphen at either end of a label. A label of 64 octets or a name of
# 254 does not match; `_refuse_ascii` then names the violated rule.
_LDH: Final = re.compile(
    r"(?=.{1,253}\Z)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)*"
    r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\Z"
)
_BAD_PERCENT: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_FIRST_OF_NAME: Final = re.compile(r"[A-Za-z0-9_]")


@dataclass(frozen=True, slots=True)
class Address:
    """One parsed address. Equal addresses name the same node, wherever they occur (A-01).

    Attributes:
        node: the name before the last at sign; empty only in ``@domain``.
        domain: lower-case A-labels without a final dot, or None for a node of this container.
    """

    node: str
    domain: str | None = None

    def __str__(self) -> str:
        return format(self)


@lru_cache(maxsize=_REMEMBERED)
def parse(text: str) -> Address:
    """Parse an address.

    Raises:
        InvalidField: it is not an address; the description has the reason.
    """
    node, at, domain = text.rpartition("@")
    if not at:
        if not domain:
            raise InvalidField("the address is empty")
        node = domain
        parsed = Address(node)
    elif not domain:
        raise InvalidField(
            f"address {_quoted(text)} ends with the at sign; write the domain after it, or leave "
            "the at sign out for a node of this broker"
        )
    else:
        try:
            parsed = Address(node, normalize_domain(domain))
        except InvalidField as error:
            raise InvalidField(f"address {_quoted(text)}: {error.description}") from None
    if node.startswith(_HOSTS):
        raise InvalidField(f"address {_quoted(text)} begins with two slashes, as no address does")
    # One character is four octets at most, so that most names need no encoding here.
    if not node.isascii() or len(node) > MAX_NODE_OCTETS:
        _check_node_octets(node)
    return parsed


def format(address: Address) -> str:
    """Format an address in its one normal form; `parse` of it gives the same address again."""
    if address.domain is None:
        return address.node
    return f"{address.node}@{address.domain}"


def normalize_domain(text: str) -> str:
    """Normalize a domain to the form used in comparisons: lower-case A-labels.

    Upper case, a final dot and the compatibility forms of UTS #46 are folded away
    (non-transitional processing, as browsers do it).

    Raises:
        InvalidField: it is not a domain name; the description has the reason.
    """
    if _LDH.match(text) and "xn--" not in text and not text[-1].isdigit():
        return text
    return _normalize_slowly(text)


@lru_cache(maxsize=_REMEMBERED)
def _normalize_slowly(text: str) -> str:
    # The mapping can make text shorter, never below one octet for each character that counts;
    # refusing here keeps the IDNA tables away from text of any length.
    if len(text) > 4 * MAX_DOMAIN_OCTETS:
        raise InvalidField(f"the domain is longer than {MAX_DOMAIN_OCTETS} octets")
    folded = text.lower() if text.isascii() else _map(text)
    folded = folded.removesuffix(".")
    if not folded.isascii():
        folded = ".".join(_to_a_label(label, text) for label in folded.split("."))
    if not _LDH.match(folded):
        raise InvalidField(_what_is_wrong(folded, text))
    for label in folded.split("."):
        if label.startswith("xn--"):
            _check_a_label(label, text)
    if folded.rpartition(".")[2].isdigit():
        raise InvalidField(
            f"{_quoted(text)} is not a domain name: its last label is a number; an address names "
            "a domain, and a route says at which IP address it is reached"
        )
    return folded


def _map(text: str) -> str:
    try:
        return idna.uts46_remap(text, std3_rules=False, transitional=False)
    except (idna.IDNAError, UnicodeError) as error:
        raise InvalidField(f"{_quoted(text)} is not a domain name: {_words(error)}") from None


def _to_a_label(label: str, text: str) -> str:
    if label.isascii():
        return label
    try:
        return idna.alabel(label).decode("ascii")
    except (idna.IDNAError, UnicodeError) as error:
        raise InvalidField(f"{_quoted(text)} is not a domain name: {_words(error)}") from None


def _check_a_label(label: str, text: str) -> None:
    """Refuse ``xn--`` labels that no Unicode label encodes to: they would be a second spelling."""
    try:
        back = idna.alabel(idna.ulabel(label)).decode("ascii")
    except (idna.IDNAError, UnicodeError) as error:
        raise InvalidField(
            f"{_quoted(text)} is not a domain name: label {label!r} does not decode: "
            f"{_words(error)}"
        ) from None
    if back != label:
        raise InvalidField(f"{_quoted(text)} is not a domain name: label {label!r} is not normal")


def _what_is_wrong(folded: str, text: str) -> str:
    quoted = _quoted(text)
    if not folded:
        return f"{quoted} is not a domain name: it is empty"
    if folded.startswith("["):
        return f"{quoted} is not a domain name: an address names a domain, not an IP address"
    labels = folded.split(".")
    if not all(labels):
        return f"{quoted} is not a domain name: two dots stand together or one stands first"
    strange = re.search(r"[^a-z0-9.-]", folded)
    if strange is not None:
        character = strange.group()
        hint = "; an address carries no port, give one in a route" if character == ":" else ""
        return f"{quoted} is not a domain name: it contains {character!r}{hint}"
    for label in labels:
        if len(label) > MAX_LABEL_OCTETS:
            return f"{quoted} is not a domain name: a label is over {MAX_LABEL_OCTETS} octets"
        if label[0] == "-" or label[-1] == "-":
            return f"{quoted} is not a domain name: label {label!r} starts or ends with a hyphen"
    return f"{quoted} is not a domain name: it is longer than {MAX_DOMAIN_OCTETS} octets"


def is_reserved(name: str) -> bool:
    """Return whether a node name is reserved for services; nobody may create such a node (A-07)."""
    return name.startswith(_RESERVED)


def check_new_name(name: str) -> None:
    """Check the name for a new node: stricter than for names in addresses (Q-11).

    Raises:
        NotAllowed: the name is reserved for services.
        InvalidField: it is empty, too long, starts with something other than an ASCII letter, a
            digit or an underscore, or contains an at sign.
    """
    if not name:
        raise InvalidField("a node needs a name; this one is empty")
    if is_reserved(name):
        raise NotAllowed(
            f"node name {_quoted(name)} is reserved: names that start with amqp$, $management or "
            "/management belong to services"
        )
    if not _FIRST_OF_NAME.match(name):
        raise InvalidField(
            f"node name {_quoted(name)} starts with {name[0]!r}; the first character has to be "
            "a letter a-z or A-Z, a digit or an underscore"
        )
    if "@" in name:
        raise InvalidField(
            f"node name {_quoted(name)} contains an at sign; node@domain is an address in "
            "another domain, never a node's own name"
        )
    _check_node_octets(name)


def from_compatibility(text: str) -> str | None:
    """Read ``/queues/<name>`` and ``/topics/<name>``, the addresses of clients made for RabbitMQ 4.

    The name is percent-encoded. The result is an address in the ordinary form: a plain node name,
    or ``node@domain`` if the client wrote ``/queues/node%40domain``; `parse` it next.

    Returns:
        The plain address, or None if the text is not of this form.

    Raises:
        InvalidField: it is of this form, and the name is empty or badly encoded.
    """
    if not text.startswith(_COMPATIBILITY):
        return None
    name = text[8:]  # both prefixes are eight characters
    if not name:
        raise InvalidField(f"address {_quoted(text)} names no node")
    if "/" in name:
        raise InvalidField(f"address {_quoted(text)}: write a slash in the name as %2F")
    return _unquoted(name)


def from_exchange_address(text: str) -> tuple[str, str | None] | None:
    """Read ``/exchanges/<name>`` and ``/exchanges/<name>/<key>``; both are percent-encoded.

    Exchanges and queues are two name spaces; a bare name is never an exchange.

    Returns:
        The name, and the routing key or None; or None if the text is not of this form.

    Raises:
        InvalidField: it is of this form, and the name is empty or something is badly encoded.
    """
    if not text.startswith(_EXCHANGES):
        return None
    name, slash, key = text[len(_EXCHANGES) :].partition("/")
    if not name:
        raise InvalidField(f"address {_quoted(text)} names no exchange")
    if "/" in key:
        raise InvalidField(f"address {_quoted(text)}: write a slash in the key as %2F")
    return _unquoted(name), _unquoted(key) if slash else None


def exchange_node(name: str) -> str:
    """Return the name of an exchange in access rules and the journal: ``/exchanges/<name>``.

    A slash or percent sign in the name is percent-encoded, as in the address of the exchange:
    `from_exchange_address` reads the result.
    """
    if "%" in name or "/" in name:
        name = name.replace("%", "%25").replace("/", "%2F")
    return f"{_EXCHANGES}{name}"


def node_of_rules(node: str) -> str:
    """Return the name of a node in access rules: an exchange without the routing key after it.

    Raises:
        InvalidField: it is badly encoded.
    """
    exchange = from_exchange_address(node)
    return node if exchange is None else exchange_node(exchange[0])


def in_host(host: str, name: str) -> str:
    """Return the name of a virtual host's node within the broker: ``//HOST/NAME``.

    Args:
        host: the virtual host, which has no slash in its name; empty for ``/``.
        name: the name of the node, in its clients' form.
    """
    return f"{_HOSTS}{host}/{name}" if host else name


def split_host(name: str) -> tuple[str, str]:
    """Return the virtual host of a node, and its name there; see `in_host`."""
    if name[:2] != _HOSTS:
        return "", name
    host, slash, local = name[2:].partition("/")
    return (host, local) if host and slash else ("", name)


def host_of(name: str) -> str:
    """Return the virtual host of a node; empty for ``/``."""
    return split_host(name)[0] if name[:2] == _HOSTS else ""


def host_label(host: str) -> str:
    """Return the name of a virtual host for operators and clients: ``/`` for the default one."""
    return host or ROOT_HOST


def host_named(label: str) -> str:
    """Return the virtual host that `host_label` gives a label to."""
    return "" if label == ROOT_HOST else label


def placed_in(label: str, name: str) -> str | None:
    """Return the name within the broker of a node that was given with a virtual host.

    Args:
        label: the virtual host; see `host_label`.
        name: the name of the node, in its clients' form or within the broker.

    Returns:
        The name; None if it belongs to another virtual host.
    """
    there = host_of(name)
    if there:
        return name if there == label else None
    return in_host(host_named(label), name)


def local_name(name: str) -> str:
    """Return the name of a node for clients of its virtual host."""
    return split_host(name)[1] if name[:2] == _HOSTS else name


def from_uri(text: str, host: str | None) -> str | None:
    """Read ``amqps://HOST/<name>``, the address of a node in the form of Azure's clients.

    Args:
        text: the address of a source or target.
        host: the host name in the open of the connection. A URI with another host does not match:
            it names another broker.

    Returns:
        The plain address, or None if the text is not of this form.

    Raises:
        InvalidField: it is of this form, and the name is badly encoded.
    """
    if not host or not text.startswith(_SCHEMES):
        return None
    authority, _, name = text.partition("://")[2].partition("/")
    named = authority.rpartition("@")[2]
    # An IPv6 address contains colons, and is in brackets.
    named = named[1:].partition("]")[0] if named[:1] == "[" else named.partition(":")[0]
    if not name or named.lower() != host.strip("[]").lower():
        return None
    return _unquoted(name)


def _unquoted(name: str) -> str:
    """Decode a percent-encoded name.

    Raises:
        InvalidField: it is badly encoded.
    """
    if "%" not in name:
        return name
    if _BAD_PERCENT.search(name):
        raise InvalidField(
            f"address {_quoted(name)}: a percent sign is not followed by two hexadecimal digits"
        )
    try:
        return unquote_to_bytes(name).decode("utf-8")
    except UnicodeError:
        raise InvalidField(f"address {_quoted(name)} does not decode to UTF-8") from None


def _check_node_octets(node: str) -> None:
    try:
        octets = len(node.encode("utf-8"))
    except UnicodeEncodeError:
        raise InvalidField(f"node name {_quoted(node)} contains half of a surrogate pair") from None
    if octets > MAX_NODE_OCTETS:
        raise InvalidField(f"the node name has {octets} octets; {MAX_NODE_OCTETS} are allowed")


def _words(error: Exception) -> str:
    return str(error).encode("ascii", "backslashreplace").decode("ascii")


def _quoted(text: str) -> str:
    """Quote a stranger's text for an error: escaped, and truncated to protect the log."""
    return ascii(text if len(text) <= 80 else text[:80] + "...")
