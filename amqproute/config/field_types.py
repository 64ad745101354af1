# SPDX-License-Identifier: Apache-2.0
"""The types of settings: validation and conversion of values from the file.

A validator raises `ValueError` with a text for the operator; the loader adds the file, the line and
the key.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import SplitResult, urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    JsonValue,
    PlainSerializer,
    ValidationInfo,
)

from amqproute import address, dial_policy
from amqproute.config import units
from amqproute.config.endpoint import parse_endpoint
from amqproute.config.value_references import CREDENTIALS, credential
from amqproute.errors import AmqpError

Right = Literal["publish", "consume", "create", "transfer", "browse", "manage", "impersonate"]
ReportWord = Literal["failure", "delay", "relayed", "delivered", "return"]
RemoteService = Literal["$management", "amqp$admin", "amqp$dtxCoordinator"]
Mechanism = Literal["EXTERNAL", "SCRAM-SHA-256", "OAUTHBEARER", "XOAUTH2", "PLAIN", "ANONYMOUS"]
Level = Literal["none", "tls", "pkix", "dane", "dane-or-pkix", "pin"]

LONGEST_PATTERN: Final = 1024
"""Characters of the pattern of a policy."""
LONGEST_SHORT_TEXT: Final = 255
"""Octets of a short string of AMQP 0-9-1."""
DEFAULT_INCLUDE: Final = ("conf.d/*.yaml",)
"""The value of ``include`` where the main file does not give it."""
SYSTEM_TRUST: Final = "system"
"""The value of ``tls.trust`` for the certificate authorities of the machine."""


def _in_words(check: Callable[[str], Any]) -> Callable[[str], Any]:
    """Turn a check that raises `AmqpError` into a validator, which must raise `ValueError`."""

    def checked(text: str) -> Any:
        try:
            return check(text)
        except AmqpError as error:
            raise ValueError(error.description) from None

    return checked


def _new_name(text: str) -> str:
    address.check_new_name(text)
    return text


def _host_name(text: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,126}", text) is None:
        raise ValueError(
            f"{text!r:.140}: the name of a virtual host has letters a-z and A-Z, digits and _ . -, "
            "at most 127, and does not start with a dot or a dash; a leading slash is "
            "client syntax"
        )
    return text


def _domain_pattern(text: str) -> str:
    """Normalize ``*``, ``*.example`` or ``beta.example``."""
    if text == "*":
        return text
    if text.startswith("*."):
        return "*." + address.normalize_domain(text[2:])
    if "*" in text:
        raise ValueError(f"{text!r}: a star stands alone or as the first label, as in *.example")
    return address.normalize_domain(text)


def _distinct_domains(value: object) -> object:
    """Refuse two keys that normalize to the same domain: one of them would be lost."""
    return _distinct(value, _domain_pattern, "domain")


def _distinct(value: object, normalize: Callable[[str], str], kind: str) -> object:
    seen: dict[str, str] = {}
    for key in value if isinstance(value, dict) else ():
        try:
            normal = normalize(str(key))
        except (AmqpError, ValueError):
            continue  # the key's own validator reports the problem
        if normal in seen:
            raise ValueError(f"{key!r} and {seen[normal]!r} are the same {kind}; keep one")
        seen[normal] = str(key)
    return value


def matches_domain(pattern: str, domain: str) -> bool:
    """Return whether a normalized domain matches a normalized pattern.

    ``*.example`` covers ``beta.example`` and ``a.b.example``, but not ``example`` itself.
    """
    if pattern == "*" or pattern == domain:
        return True
    return pattern.startswith("*.") and domain.endswith(pattern[1:])


def _path(value: object, info: ValidationInfo) -> object:
    """Make a path from text; relative paths start from the configuration file's directory."""
    if isinstance(value, Path):
        return value
    if not isinstance(value, str):
        hint = "; put it in quotes" if isinstance(value, bool | int | float) else ""
        raise ValueError(f"{value!r} is not the path of a file{hint}")
    context = info.context if isinstance(info.context, dict) else {}
    return file_path(value, context.get("directory"), context.get("credentials"))


def file_path(text: str, directory: Path | None, credentials: Path | None) -> Path:
    """Return the path that a setting names.

    Args:
        text: the text as written; ``%d/NAME`` is a credential of the unit.
        directory: the directory of the main file, which relative paths start from.
        credentials: the directory of the unit's credentials; None if it is not known.

    Raises:
        ValueError: it is no path.
    """
    if not text or "\0" in text:
        raise ValueError(f"{text!r} is not the path of a file")
    if text.startswith(CREDENTIALS):
        return credential(text, credentials)
    return Path(text) if directory is None else directory / text


def _realm_name(text: str) -> str:
    """Check the name of a realm; the broker's own have theirs already."""
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,31}", text):
        raise ValueError(
            f"{text!r} is not the name of a realm; write up to 32 small letters, digits and hyphens"
        )
    if text in ("file", "ldap", "oauth"):
        raise ValueError(f"the name {text!r} is that of a realm of the broker itself; take another")
    return text


def _user_pattern(text: str) -> str:
    """Check a pattern for names of users."""
    if not text or any(mark in text for mark in "?[]") or any(each.isspace() for each in text):
        raise ValueError(f"{text!r} is not a pattern of names of users, as in svc-*")
    return text


def _with_credentials(value: object, info: ValidationInfo) -> object:
    """Return settings of a plug-in in which texts ``%d/NAME`` are paths of credentials."""
    context = info.context if isinstance(info.context, dict) else {}
    directory = context.get("credentials")

    def resolved(each: object) -> object:
        if isinstance(each, str) and each.startswith(CREDENTIALS):
            return str(credential(each, directory))
        if isinstance(each, list):
            return [resolved(item) for item in each]
        if isinstance(each, dict):
            return {key: resolved(item) for key, item in each.items()}
        return each

    return resolved(value)


def include_pattern(text: str) -> str:
    """Check the pattern of files to include."""
    if not text or "\0" in text:
        raise ValueError(f"{text!r} is not the path of a file")
    if any(mark in part for part in Path(text).parts[:-1] for mark in "*?["):
        raise ValueError(f"{text!r}: a star is for names of files, not of directories")
    return text


def _trust(value: object, info: ValidationInfo) -> object:
    return SYSTEM_TRUST if value == SYSTEM_TRUST else _path(value, info)


def _as_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _endpoint_text(text: str) -> str:
    parse_endpoint(text)
    return text


def _directory_url(text: str) -> str:
    """Check the URL of a directory server; it has no path, no query, and ends without a slash."""
    text = text.removesuffix("/")
    if re.fullmatch(r"ldapi://[A-Za-z0-9%._-]+", text):
        return text
    try:
        parts = urlsplit(text)
        is_one = parts.scheme in ("ldap", "ldaps") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_one = False
    else:
        is_one = is_one and not (parts.path or parts.query or parts.fragment or parts.username)
    if not is_one:
        raise ValueError(f"{text!r} is no server; write it as in ldaps://ldap.example:636")
    return text


def _issuer_url(text: str) -> str:
    """Check an issuer: https, or http to this machine (OpenID Connect Discovery 1.0 §2)."""
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    is_local = host is not None and host in ("localhost", "127.0.0.1", "::1")
    if (
        host is None
        or not (parts.scheme == "https" or (parts.scheme == "http" and is_local))
        or parts.query
        or parts.fragment
        or parts.username is not None
        or not text.isascii()
        or len(text) > LONGEST_SHORT_TEXT
    ):
        raise ValueError(f"{text!r:.140} is no issuer; write it as in https://login.example/realm")
    return text


def _who(text: str) -> str:
    if text in ("*", "anonymous"):
        return text
    kind, colon, name = text.partition(":")
    if colon and name:
        if kind in ("user", "group"):
            return text
        if kind == "peer":
            return f"peer:{_in_words(_domain_pattern)(name)}"
        if kind == "uid":
            if re.fullmatch(r"[0-9]{1,10}|\*", name):
                return text
            raise ValueError(f"{text!r}: a user id is a number, as in uid:1000, or uid:*")
    raise ValueError(
        f"{text!r} is not a principal; write user:NAME, user:*, group:NAME, peer:DOMAIN, peer:*, "
        "uid:NUMBER, uid:*, anonymous, or * for everybody"
    )


def _contract_holder(text: str) -> str:
    if text == "anonymous" or (text.startswith("user:") and len(text) > len("user:")):
        return text
    if text.startswith("peer:"):
        raise ValueError(f"{text!r}: a peer's contract belongs under peers, in contract")
    raise ValueError(f"{text!r} cannot have a contract; write user:NAME, user:* or anonymous")


def _nameserver(text: str) -> str:
    """Check ``192.0.2.1``, ``192.0.2.1:53``, ``2001:db8::1`` or ``[2001:db8::1]:53``."""
    bracketed = re.fullmatch(r"\[([^\]]*)\](?::([0-9]{1,5}))?", text)
    if bracketed is not None:
        host, port = bracketed[1], bracketed[2]
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    else:
        host, port = text, None
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise ValueError(
            f"{text!r} is not a name server; write an IP address, with a port as in "
            "127.0.0.1:53 or [::1]:53"
        ) from None
    if port is not None and not (port.isdigit() and 0 < int(port) <= 65535):
        raise ValueError(f"{text!r}: {port!r} is not a port")
    return text


def _network(text: str) -> str:
    """Normalize a network; one of IPv4-mapped IPv6 addresses becomes the IPv4 network."""
    try:
        network = ipaddress.ip_network(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a network as in 10.0.0.0/8: {error}") from None
    if isinstance(network, ipaddress.IPv6Network) and network.prefixlen >= 96:
        mapped = network.network_address.ipv4_mapped
        if mapped is not None:
            return str(ipaddress.ip_network((mapped, network.prefixlen - 96)))
    return str(network)


def _distinct_networks(value: object) -> object:
    """Refuse two keys that normalize to the same network: one of them would be lost."""
    return _distinct(value, _network, "network")


def _target_network(text: str) -> str:
    network = _network(text)
    if dial_policy.is_impossible(network):
        raise ValueError(f"{text!r} cannot contain a broker; remove it")
    return network


def _pin(text: str) -> str:
    """Check ``sha256:HEX`` or ``key-sha256:HEX``; colons between the digits are removed."""
    kind, _, digits = text.strip().partition(":")
    digits = digits.replace(":", "").lower()
    if kind not in ("sha256", "key-sha256") or not re.fullmatch(r"[0-9a-f]{64}", digits):
        raise ValueError(
            f"{text!r} is not a pin; write sha256: (the certificate) or key-sha256: (its key) "
            "and the 64 hexadecimal digits that `amqproute certs show` prints"
        )
    return f"{kind}:{digits}"


def _probe_zone(text: str) -> str:
    return text if text == "." else str(_in_words(address.normalize_domain)(text))


def _bound_target(text: str) -> str:
    if "@" not in text:
        return _new_name(text)
    parsed = address.parse(text)
    if not parsed.node or address.is_reserved(parsed.node):
        raise ValueError(f"{text!r} is not the address of a node; write NODE or NODE@DOMAIN")
    return str(parsed)


def _regular_expression(text: str) -> str:
    if len(text) > LONGEST_PATTERN:
        raise ValueError(f"it has {len(text)} characters, more than {LONGEST_PATTERN}")
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from None
    return text


def _short_text(text: str) -> str:
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > LONGEST_SHORT_TEXT:
        raise ValueError(f"it has {size} octets, more than {LONGEST_SHORT_TEXT}")
    return text


def _policy_name(text: str) -> str:
    if not text or not text.isprintable():
        raise ValueError(f"{text!r} is not a name: it has characters that can be printed")
    return _short_text(text)


def _container_id(text: str) -> str:
    if not re.fullmatch(r"[\x21-\x7e]{1,255}", text):
        raise ValueError(
            f"{text!r} is not a container id; it is 1 to 255 visible ASCII characters, best the "
            "host's full name"
        )
    return text


def _target(text: str) -> str:
    unknown = [name for name in re.findall(r"\{([^{}]*)\}", text) if name not in ("node", "domain")]
    stripped = re.sub(r"\{(node|domain)\}", "", text)
    if not text or unknown or "{" in stripped or "}" in stripped:
        raise ValueError(
            f"{text!r} is not a target; write amqp$transfer, anonymous, or a template with "
            "{node} and {domain} in it, as in /queues/{node}"
        )
    if text not in (address.TRANSFER_NODE, "anonymous") and "{node}" not in text:
        raise ValueError(
            f"{text!r} would put the messages for every node into one; write {{node}} where the "
            "name of the node belongs, as in /queues/{node}"
        )
    return text


@dataclass(frozen=True, slots=True)
class Via:
    """The fixed next hop of a route: one host and port, and whether TLS starts at once.

    Attributes:
        host: a normalized host name or an IP address.
        port: the TCP port.
        tls: True for ``amqps``; False for ``amqp``, where TLS may follow the AMQP TLS header.
    """

    host: str
    port: int
    tls: bool


def parse_via(text: str) -> Via:
    """Parse the fixed next hop of a route: ``amqp[s]://HOST[:PORT]``.

    Raises:
        ValueError: the text is not such a URL.
    """
    try:
        url: SplitResult = urlsplit(text)
        port = url.port
    except ValueError as error:
        raise ValueError(f"this is not a URL: {error}") from None
    host = url.hostname
    if "@" in url.netloc:  # not quoted: the output of check goes into tickets
        raise ValueError(
            "a user or a password has no place here; peers prove who they are by certificate"
        )
    if url.scheme not in ("amqp", "amqps") or not host:
        raise ValueError(f"{text!r} is not a next hop; write amqps://HOST:PORT or amqp://HOST:PORT")
    if url.path not in ("", "/") or url.query or url.fragment or port == 0:
        raise ValueError(f"{text!r}: the URL of a next hop has only a host and a port")
    try:
        host = str(ipaddress.ip_address(host))
    except ValueError:
        host = _in_words(address.normalize_domain)(host)
    tls = url.scheme == "amqps"
    return Via(host, port if port is not None else (5671 if tls else 5672), tls)


def _via_text(text: str) -> str:
    parse_via(text)
    return text


def _http_url(text: str) -> str:
    parts = urlsplit(text)
    _ = parts.port  # raises ValueError
    if parts.scheme not in ("http", "https") or not parts.hostname or not text.isascii():
        raise ValueError(f"{text!r} is not a URL such as https://collector.example:4318/v1/traces")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise ValueError("a URL without user, password and fragment is wanted")
    return text


def is_own_url(text: str) -> bool:
    """Return whether a URL leads to this machine, by name or address."""
    host = urlsplit(text).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


Seconds = Annotated[
    float,
    BeforeValidator(units.parse_seconds),
    PlainSerializer(units.format_seconds, return_type=str, when_used="json"),
]
Bytes = Annotated[
    int,
    BeforeValidator(units.parse_bytes),
    PlainSerializer(units.format_bytes, return_type=str, when_used="json"),
]
BytesOrPart = Annotated[
    int | str,
    BeforeValidator(units.parse_part),
    PlainSerializer(
        lambda size: size if isinstance(size, str) else units.format_bytes(size),
        return_type=str,
        when_used="json",
    ),
]
DirectoryUrl = Annotated[str, AfterValidator(_directory_url)]
IssuerUrl = Annotated[str, AfterValidator(_issuer_url)]
FilePath = Annotated[Path, BeforeValidator(_path)]
Trust = Annotated[Path | Literal["system"], BeforeValidator(_trust)]
Domain = Annotated[str, AfterValidator(_in_words(address.normalize_domain))]
DomainPattern = Annotated[str, AfterValidator(_in_words(_domain_pattern))]
VirtualHostName = Annotated[str, AfterValidator(_host_name)]
NodeName = Annotated[str, AfterValidator(_in_words(_new_name))]
EndpointText = Annotated[str, AfterValidator(_endpoint_text)]
Who = Annotated[str, AfterValidator(_who)]
ContractHolder = Annotated[str, AfterValidator(_contract_holder)]
Nameserver = Annotated[str, AfterValidator(_nameserver)]
Network = Annotated[str, AfterValidator(_network)]
TargetNetwork = Annotated[str, AfterValidator(_target_network)]
Port = Annotated[int, Field(ge=1, le=65535)]
PinText = Annotated[str, AfterValidator(_pin)]
ProbeZone = Annotated[str, AfterValidator(_probe_zone)]
NodeType = Literal["queue", "topic"]
BoundTarget = Annotated[str, AfterValidator(_in_words(_bound_target))]
IncludePattern = Annotated[str, AfterValidator(include_pattern)]
ContainerId = Annotated[str, AfterValidator(_container_id)]
PolicyName = Annotated[str, AfterValidator(_policy_name)]
RegularExpression = Annotated[str, AfterValidator(_regular_expression)]
RealmName = Annotated[str, AfterValidator(_realm_name)]
UserPattern = Annotated[str, AfterValidator(_user_pattern)]
FreeSettings = Annotated[dict[str, JsonValue], BeforeValidator(_with_credentials)]
"""Settings that a plug-in checks; the broker does not know them."""
ShortText = Annotated[str, AfterValidator(_short_text)]
Target = Annotated[str, AfterValidator(_target)]
HttpUrl = Annotated[str, AfterValidator(_http_url)]
ViaText = Annotated[str, AfterValidator(_via_text)]
FromList = BeforeValidator(_as_tuple)
"""Lets a YAML list become a tuple; strict pydantic does not."""

DistinctDomains = BeforeValidator(_distinct_domains)
DistinctNetworks = BeforeValidator(_distinct_networks)
