# SPDX-License-Identifier: Apache-2.0
"""Quotas of senders: the store space of their messages.

An entry of a sender with an account is charged to it, with its octets, from its arrival until it is
gone for good, whatever queue it is on by then: bindings, topics, relay queues and
dead-letter nodes pass the charge on. A message that a topic keeps for three subscriptions counts
three times.

The account's number stands in the flags of the entry's row (`amqproute.entry.ACCOUNT_SHIFT`), so
that a restart need not read bodies to know what each account holds; name and number are a note of
the store. Nothing is written when an entry comes or goes: the row itself is the record. Entries of
senders without an account cost nothing here.

Limits: additions to a message by `modified` change its size but not its charge, until
the entry is read from the store again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from twisted.logger import Logger
from twisted.python.failure import Failure

from amqproute.entry import ACCOUNT_SHIFT, Entry
from amqproute.interfaces import IBatch

__all__ = ["NOTES", "SenderQuota", "SenderQuotas"]

NOTES: Final = "account"
"""The kind of the store's notes: name to number."""


class SenderQuota:
    """Space that the messages of one sender occupy.

    Attributes:
        key: name of the sender.
        number: the number in the store.
        octets: the octets of its messages.
        messages: their number.
    """

    __slots__ = ("_mark", "_notify", "key", "messages", "number", "octets")

    def __init__(self, key: str, number: int) -> None:
        self.key = key
        self.number = number
        self.octets = 0
        self.messages = 0
        self._mark = -1
        self._notify: Callable[[], None] | None = None

    def __repr__(self) -> str:
        return (
            f"<SenderQuota {self.number} {self.key} messages={self.messages} octets={self.octets}>"
        )

    @property
    def flags(self) -> int:
        """Its bits in the flags of rows."""
        return self.number << ACCOUNT_SHIFT

    def came(self, octets: int) -> None:
        """Charge one message more."""
        self.messages += 1
        self.octets += octets

    def gone(self, octets: int) -> None:
        """Charge one message less."""
        self.messages -= 1
        self.octets = max(0, self.octets - octets) if self.messages > 0 else 0
        if self.octets <= self._mark and self._notify is not None:
            notify, self._notify, self._mark = self._notify, None, -1
            notify()

    def when_below(self, octets: int, notify: Callable[[], None]) -> None:
        """Call ``notify()`` once when it holds no more than that; the last call counts.

        It is called in the middle of a removal, and has to defer its work.
        """
        self._mark = octets
        self._notify = notify


class SenderQuotas:
    """All accounts.

    Args:
        begin: makes a `Batch`, for the names of new accounts.
    """

    _log = Logger()

    def __init__(self, begin: Callable[[], IBatch] | None = None) -> None:
        self._begin = begin
        self._last = 0
        self._by_key: dict[str, SenderQuota] = {}
        self.by_number: dict[int, SenderQuota] = {}

    def __len__(self) -> int:
        return len(self.by_number)

    def recovered(
        self, notes: Mapping[str, bytes], held: Mapping[int, tuple[int, int]]
    ) -> list[str]:
        """Take over the accounts of an earlier run.

        Args:
            notes: the notes of the kind `NOTES`.
            held: number to messages and octets.

        Returns:
            The names whose accounts are empty: they are forgotten, and their notes can go.
        """
        empty = []
        self._last = max(held, default=0)
        for key, value in notes.items():
            try:
                number = int(value)
            except ValueError as error:
                self._log.error(
                    "cannot read the quota of {key}: its messages are not counted: {error}",
                    key=key,
                    error=str(error),
                )
                continue
            messages, octets = held.get(number, (0, 0))
            if not messages:
                empty.append(key)
                continue
            account = self._enter(key, number)
            account.messages, account.octets = messages, octets
        return empty

    def of(self, key: str) -> SenderQuota:
        """Return the account of a sender; open it if necessary."""
        account = self._by_key.get(key)
        if account is None:
            account = self._enter(key, self._last + 1)
            if self._begin is not None:
                # Commits are in order: the note is there before any row with the number.
                batch = self._begin()
                batch.transaction.note(NOTES, key, b"%d" % account.number)
                batch.commit().addErrback(self._not_noted, key)
        return account

    def find(self, key: str) -> SenderQuota | None:
        """Return the account of a sender, or None."""
        return self._by_key.get(key)

    def _not_noted(self, failure: Failure, key: str) -> None:
        self._log.warn(
            "cannot store the quota of {key}: its usage is not counted after a restart: {reason}",
            key=key,
            reason=failure.getErrorMessage(),
        )

    def _enter(self, key: str, number: int) -> SenderQuota:
        self._last = max(self._last, number)
        account = self._by_key[key] = self.by_number[number] = SenderQuota(key, number)
        return account

    # -- entries ---------------------------------------------------------------------------------

    def loaded(self, entry: Entry, flags: int) -> None:
        """Note the account of an entry that was read from the store and is charged already."""
        account = self.by_number.get(flags >> ACCOUNT_SHIFT)
        if account is not None:
            entry.charge = (account, entry.message.size)

    @staticmethod
    def put(entry: Entry, account: SenderQuota) -> None:
        """Charge an entry to an account."""
        octets = entry.message.size
        entry.charge = (account, octets)
        account.came(octets)

    @staticmethod
    def gone(entries: Iterable[Entry]) -> None:
        """Credit entries that have left for good."""
        for entry in entries:
            if entry.charge is not None:
                account, octets = entry.charge
                account.gone(octets)

    @staticmethod
    def back(entries: Iterable[Entry]) -> None:
        """Undo `gone`."""
        for entry in entries:
            if entry.charge is not None:
                account, octets = entry.charge
                account.came(octets)
