# SPDX-License-Identifier: Apache-2.0
"""Access rules: what a principal may do to a node. The first matching rule decides.

A rule matches when its ``who`` fits the principal, its ``node`` fits the name, and the verb is in
its ``allow`` or ``deny``. If no rule matches, access is refused. In patterns only the star is
special: it stands for any run of characters, including an empty one, dots and at signs. ``user:*``
is every user; ``*`` is everybody, including anonymous. Everything else, such as ``amqp$transfer``,
is literal.

A peer's certificate may prove several names; a rule for a peer fits if it fits one of them. So it
is with the groups of a user: ``group:operators`` fits every user who has logged in with that group.

Pure: no I/O, no clock. `AccessPolicy.allows` runs for each message to a service node, so its
answers are cached; the cache is bounded because names come from peers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from amqproute.values import Principal

__all__ = [
    "REMEMBERED_ANSWERS",
    "AccessPolicy",
    "Rule",
    "Verb",
    "default_rules",
    "pattern_matcher",
]

REMEMBERED_ANSWERS: Final = 8192
"""Cached answers; a full cache is emptied, which costs less than tracking the order of use."""

_MAX_REMEMBERED_NAME: Final = 256
"""Longer node names are not cached, so that the cache cannot grow to megabytes."""

_KINDS: Final = ("user", "group", "peer", "uid")


class Verb(StrEnum):
    """Operations on a node; see the docstring of `amqproute.auth`."""

    PUBLISH = "publish"
    CONSUME = "consume"
    BROWSE = "browse"
    CREATE = "create"
    TRANSFER = "transfer"
    MANAGE = "manage"
    IMPERSONATE = "impersonate"


def pattern_matcher(pattern: str) -> Callable[[str], bool]:
    """Return the predicate of a pattern in which only ``*`` is special.

    Each piece is found by `str.find`, not by a regular expression: the leftmost fit of each piece
    is enough, while several ``.*`` backtrack, and names come from strangers.
    """
    if "*" not in pattern:
        return pattern.__eq__
    head, *middle, tail = pattern.split("*")
    if not (head or tail or any(middle)):
        return lambda _: True
    pieces = [piece for piece in middle if piece]

    def fits(text: str) -> bool:
        if not text.startswith(head) or not text.endswith(tail):
            return False
        at, end = len(head), len(text) - len(tail)
        for piece in pieces:
            at = text.find(piece, at, end)
            if at < 0:
                return False
            at += len(piece)
        return at <= end

    return fits


@dataclass(frozen=True, slots=True)
class Rule:
    """One entry of ``access``.

    Attributes:
        who: a pattern over the string forms of principals.
        node: a pattern over node names and addresses.
        allow: the verbs it grants.
        deny: the verbs it refuses.
        note: where the rule comes from, if not from the configuration.
    """

    who: str
    node: str
    allow: frozenset[Verb] = frozenset()
    deny: frozenset[Verb] = frozenset()
    note: str = ""

    @classmethod
    def of(
        cls, *, who: str, node: str, allow: Sequence[str] = (), deny: Sequence[str] = ()
    ) -> Rule:
        """Make a rule from an entry of the configuration.

        Raises:
            ValueError: no verb, an unknown verb, a verb both allowed and denied, or a ``who`` that
                no principal could fit; the text gives the correction.
        """
        granted, refused = _verbs(allow), _verbs(deny)
        if not granted and not refused:
            raise ValueError("an access rule needs verbs in 'allow' or 'deny'")
        if both := granted & refused:
            raise ValueError(f"{min(both)!s} is both allowed and denied")
        if not node:
            raise ValueError("'node' is empty (write \"*\" for every node)")
        name, at, domain = node.rpartition("@")
        if at:  # a domain has one spelling in rules and addresses
            node = f"{name}@{domain.lower().removesuffix('.')}"
        return cls(_checked_who(who), node, granted, refused)

    def __str__(self) -> str:
        parts = [
            f"{word}: [{', '.join(verb for verb in Verb if verb in verbs)}]"
            for word, verbs in (("allow", self.allow), ("deny", self.deny))
            if verbs
        ]
        text = f"{{{', '.join(parts)}, who: {self.who!r}, node: {self.node!r}}}"
        return f"{text} ({self.note})" if self.note else text


def _verbs(words: Sequence[str]) -> frozenset[Verb]:
    if isinstance(words, str):
        raise ValueError(f"verbs are a list: write [{words}]")
    known = frozenset(Verb)
    for word in words:
        if word not in known:
            raise ValueError(f"unknown verb {word!r} (known: {', '.join(Verb)})")
    return frozenset(Verb(word) for word in words)


def _checked_who(who: str) -> str:
    if who in ("*", "anonymous"):
        return who
    kind, colon, name = who.partition(":")
    if not colon or kind not in _KINDS or not name:
        raise ValueError(
            f"'who' is {who!r}; it has to be user:NAME, group:NAME, peer:DOMAIN, "
            "uid:NUMBER (a star may stand for any part of the name), anonymous, or *"
        )
    if kind == "uid" and not re.fullmatch(r"[0-9*]+", name):
        raise ValueError(f"'who' is {who!r}; a user id is a number or a star")
    # Certificates' names are kept in lower case; see `amqproute.auth.realm`.
    return who.lower().removesuffix(".") if kind == "peer" else who


def default_rules(
    own_uid: int, verbs: Iterable[Verb] = frozenset({Verb.MANAGE})
) -> tuple[Rule, ...]:
    """Return the rules that follow the operator's own.

    Root and the daemon's own user, on a unix socket, may `manage` every node: they can stop the
    daemon and read its store anyway, and without this rule a mistake under ``access`` would lock
    the operator out. As the last rules they give way to an explicit ``deny``.
    """
    granted = frozenset(verbs)
    return tuple(
        Rule(f"uid:{uid}", "*", granted, note="default rule for the operator")
        for uid in sorted({0, own_uid})
    )


class AccessPolicy:
    """An ordered list of rules with cached answers. Immutable; a reload makes a new one."""

    __slots__ = ("_answers", "_compiled", "rules")

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = tuple(rules)
        self._compiled = [
            (rule, pattern_matcher(rule.who), pattern_matcher(rule.node)) for rule in self.rules
        ]
        self._answers: dict[tuple[Principal, frozenset[str], str, str], bool] = {}

    def __repr__(self) -> str:
        return f"<AccessPolicy {len(self.rules)} rules>"

    def allows(self, principal: Principal, verb: Verb, node: str) -> bool:
        """Return whether `principal` may do `verb` to `node`, a node name or an address."""
        key = (principal, principal.groups, verb, node)
        answer = self._answers.get(key)
        if answer is None:
            answer = self.explain(principal, verb, node)[0]
            if len(node) <= _MAX_REMEMBERED_NAME:
                if len(self._answers) >= REMEMBERED_ANSWERS:
                    self._answers.clear()
                self._answers[key] = answer
        return answer

    def grants_any(self, principal: Principal) -> bool:
        """Return whether any rule grants `principal` anything, on any node."""
        names = _spellings(principal)
        return any(
            rule.allow and any(fits_who(name) for name in names)
            for rule, fits_who, _ in self._compiled
        )

    def grants_somewhere(self, principal: Principal, verb: Verb) -> bool:
        """Return whether a rule grants `principal` a right on any node, as far as rules tell.

        An earlier rule may take it back for all nodes that the granting rule names; only one that
        takes it back for every node counts here.
        """
        names = _spellings(principal)
        for rule, fits_who, _ in self._compiled:
            is_denied = verb in rule.deny and rule.node == "*"
            if (verb in rule.allow or is_denied) and any(fits_who(name) for name in names):
                return not is_denied
        return False

    def explain(self, principal: Principal, verb: Verb, node: str) -> tuple[bool, int | None]:
        """Return the answer and the index in `rules` of the rule that decided.

        The index is None if no rule matched and the default, refusal, decided.
        """
        names = _spellings(principal)
        for index, (rule, fits_who, fits_node) in enumerate(self._compiled):
            granted = verb in rule.allow
            if not granted and verb not in rule.deny:
                continue
            if fits_node(node) and any(fits_who(name) for name in names):
                return granted, index
        return False, None


def _spellings(principal: Principal) -> list[str]:
    spellings = [str(principal)]
    spellings.extend(
        f"{principal.kind}:{name}" for name in principal.names if name != principal.name
    )
    spellings.extend(f"group:{name}" for name in principal.groups)
    return spellings
