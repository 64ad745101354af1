# SPDX-License-Identifier: Apache-2.0
"""Kinds of filters beside those of `registry`: the interface of plug-ins.

A kind is an object with a descriptor and a method that makes filters::

    class ColorKind:
        descriptor = "acme.example:color-filter:string"
        code = None
        capability = ""

        def make(self, name, value, own_container, now_ms):
            return ColorFilter(value)

Peers choose the values: `make` raises `InvalidField` for wrong ones, and bounds what a test can
cost. A fault in a plug-in does not harm the queue: a filter that fails lets no message pass, and is
reported.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Final, Protocol

from amqproute.errors import InvalidField
from amqproute.filters.selector import Clock
from amqproute.message import Message

__all__ = ["Failed", "Filter", "FilterKind", "GuardedFilter", "fault_of_kind", "guarded"]

Failed = Callable[[str, Exception], None]
"""Called with the descriptor of a kind and what its code has raised."""

NEEDS: Final = frozenset(("header", "properties", "application", "annotations", "origin", "clock"))
"""Parts of a message that a filter may need."""
_SYMBOL: Final = re.compile(r"[\x21-\x7e]{1,255}")


class Filter(Protocol):
    """An entry condition of a link (revision 200 §2.1).

    Attributes:
        needs: parts of a message that the filter reads, so that a queue knows in advance: sections
            (``header``, ``properties``, ``application``, ``annotations``), ``origin``, and
            ``clock`` when an answer of no may become yes without a change of the message.
    """

    @property
    def needs(self) -> frozenset[str]:
        """The sections of a message that `matches` reads."""

    def matches(self, message: Message, origin: str | None = None) -> bool:
        """Return whether a message may travel along the link.

        Args:
            message: as it is in the queue.
            origin: the container-id of the connection it came in on; None when unknown.
        """


class FilterKind(Protocol):
    """A kind of filter.

    Attributes:
        descriptor: the symbolic descriptor of its values in a filter set.
        code: the numeric descriptor; None without one.
        capability: announced by the broker in its open; empty for none.
    """

    descriptor: str
    code: int | None
    capability: str

    def make(self, name: str, value: object, own_container: str, now_ms: Clock | None, /) -> Filter:
        """Return a filter.

        Args:
            name: of the filter in its filter set.
            value: the described value.
            own_container: the container-id of the peer.
            now_ms: the wall clock in ms since the epoch; None if there is none.

        Raises:
            InvalidField: the value is not valid for this kind.
        """


def fault_of_kind(value: object) -> str:
    """Return why an object is no `FilterKind`; empty if it is one."""
    descriptor = getattr(value, "descriptor", None)
    if not isinstance(descriptor, str) or _SYMBOL.fullmatch(descriptor) is None:
        return "its `descriptor` is no symbol: 1 to 255 visible ASCII characters"
    code = getattr(value, "code", None)
    if code is not None and (not isinstance(code, int) or not 0 <= code < 2**64):
        return "its `code` is neither a ulong nor None"
    if not isinstance(getattr(value, "capability", ""), str):
        return "its `capability` is no text"
    make = getattr(value, "make", None)
    if inspect.isclass(value) or not callable(make):
        return "it is no object with a method `make`"
    try:
        inspect.signature(make).bind("name", "value", "container", None)
    except (TypeError, ValueError):
        return "its `make` does not take name, value, own_container, now_ms"
    return ""


class GuardedFilter:
    """A filter of a plug-in; when it fails it lets no message pass.

    Args:
        inner: the filter.
        descriptor: of its kind.
        failed: called with what it raises.
    """

    __slots__ = ("_descriptor", "_failed", "_inner", "needs")

    def __init__(self, inner: Filter, descriptor: str, failed: Failed) -> None:
        self._inner = inner
        self._descriptor = descriptor
        self._failed = failed
        self.needs = inner.needs

    def matches(self, message: Message, origin: str | None = None) -> bool:
        """See `Filter.matches`."""
        try:
            return bool(self._inner.matches(message, origin))
        except Exception as error:  # whatever a plug-in raises: the queue goes on
            self._failed(self._descriptor, error)
            return False

    def __str__(self) -> str:
        return self._descriptor


def guarded(kind: FilterKind, failed: Failed) -> Callable[..., Filter]:
    """Return the maker of a kind's filters, whose faults are refusals."""

    def make(name: str, value: object, own_container: str, now_ms: Clock | None) -> Filter:
        try:
            made = kind.make(name, value, own_container, now_ms)
            needs: object = made.needs  # of a plug-in: it can be anything
            if not isinstance(needs, frozenset) or needs - NEEDS:
                raise TypeError(f"`needs` of a filter is a frozenset of {sorted(NEEDS)}")
            if not callable(made.matches):
                raise TypeError("a filter has a method `matches`")
        except InvalidField:
            raise
        except Exception as error:  # whatever a plug-in raises: the connection goes on
            failed(kind.descriptor, error)
            words = f"filter {name:.40}: the plug-in for {kind.descriptor:.80} has failed"
            raise InvalidField(words, info={"code": "filter.failed"}) from error
        return GuardedFilter(made, kind.descriptor, failed)

    return make
