# SPDX-License-Identifier: Apache-2.0
"""The access rules of all virtual hosts, and the border between them.

Each virtual host has rules of its own for its nodes, by the names that its clients use. Access
across the border is decided here, regardless of the rules:

===================================  =============================================================
who                                  may
===================================  =============================================================
a principal in a virtual host        act on nodes there, and publish to other organizations, by
                                     the rules there; on no other node
a peer                               transfer to a node of a virtual host, by the rules there
any other principal                  manage nodes of virtual hosts, by the rules of ``/``
===================================  =============================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from amqproute.address import split_host
from amqproute.auth.policy import AccessPolicy, Rule, Verb
from amqproute.values import Principal

__all__ = ["HostPolicies"]

_EVERYWHERE: Final = frozenset(("amqp$transfer", "dynamic"))
"""Subjects of rules besides nodes: the anonymous terminus, and creation of dynamic nodes."""


class HostPolicies:
    """Access rules. Immutable; a reload makes new ones.

    Args:
        policy: the policy of the virtual host ``/``.
        hosts: the hosts of the others, by name.
    """

    __slots__ = ("_hosts", "_policy")

    def __init__(self, policy: AccessPolicy, hosts: Mapping[str, AccessPolicy]) -> None:
        self._policy = policy
        self._hosts = dict(hosts)

    def __repr__(self) -> str:
        return f"<HostPolicies {1 + len(self._hosts)}>"

    @property
    def rules(self) -> tuple[Rule, ...]:
        """All rules, those of ``/`` first; each virtual host's behind its name."""
        found = list(self._policy.rules)
        for name, policy in sorted(self._hosts.items()):
            found += [
                Rule(rule.who, f"//{name}/{rule.node}", rule.allow, rule.deny, rule.note)
                for rule in policy.rules
            ]
        return tuple(found)

    def allows(self, principal: Principal, verb: Verb, node: str) -> bool:
        """Say whether `principal` may do `verb` to `node`.

        Args:
            principal: who asks.
            verb: what for.
            node: the name of a node within the broker (`amqproute.address.in_host`), or the address
                of one at another organization.
        """
        if node[:2] != "//" and not principal.host:
            return self._policy.allows(principal, verb, node)
        host, name = split_host(node)
        if not principal.host:
            if host and principal.kind == "peer":
                policy = self._hosts.get(host)
                is_allowed = verb is Verb.TRANSFER and policy is not None
                return is_allowed and policy is not None and policy.allows(principal, verb, name)
            return (not host or verb is Verb.MANAGE) and self._policy.allows(principal, verb, node)
        policy = self._hosts.get(principal.host)
        if policy is None or host not in ("", principal.host):
            return False
        if not host and verb is not Verb.IMPERSONATE:
            is_elsewhere = verb is Verb.PUBLISH and "@" in name
            if not is_elsewhere and name not in _EVERYWHERE:
                return False
        return policy.allows(principal, verb, name)

    def grants(self, principal: Principal, verb: Verb) -> bool:
        """Say whether the rules of a principal's virtual host grant a right on any node there."""
        policy = self._hosts.get(principal.host) if principal.host else self._policy
        return policy is not None and policy.grants_somewhere(principal, verb)

    def may_open(self, principal: Principal, host: str) -> bool:
        """Say whether a virtual host's rules allow `principal` anything there."""
        policy = self._hosts.get(host)
        return policy is not None and policy.grants_any(principal)
