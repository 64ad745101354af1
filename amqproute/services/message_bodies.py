# SPDX-License-Identifier: Apache-2.0
"""Bodies of messages as operators see them in a list, within bounds.

A body of data sections that is UTF-8 is shown as ``text``, any other as ``base64``; an amqp-value
or sequence as ``value``, in the words of JSON. A body is cut at `LONGEST_BODY` octets, and the
bodies of one answer at `MOST_OCTETS`; ``body-is-cut`` says so. The body of a very large message,
which is in parts on the disk, is not shown.
"""

from __future__ import annotations

import base64
import json
from typing import Final

from amqproute.errors import DecodeError
from amqproute.message import Message

__all__ = ["LONGEST_BODY", "MOST_OCTETS", "ShownBodies"]

LONGEST_BODY: Final = 64 * 1024
MOST_OCTETS: Final = 1024 * 1024


class ShownBodies:
    """The bodies in one answer."""

    def __init__(self) -> None:
        self._left = MOST_OCTETS

    def of(self, message: Message) -> dict[str, object]:
        """Return the attributes of a message's body."""
        if message.rest is not None or self._left <= 0:
            return {"body": None, "body-encoding": None, "body-is-cut": True}
        try:
            properties = message.properties
            values = message.body_values()
            more = {str(key): value for key, value in message.application_properties.items()}
            content_type = properties.content_type
        except DecodeError:
            return {"body": None, "body-encoding": None, "body-is-cut": True}
        finally:
            message.forget()
        body, encoding, is_cut = _shown(values, min(LONGEST_BODY, self._left))
        self._left -= len(body)
        return {
            "body": body,
            "body-encoding": encoding,
            "body-is-cut": is_cut,
            "content-type": None if content_type is None else str(content_type),
            "application-properties": json.loads(json.dumps(more, default=str)),
        }


def _shown(values: list[object], most: int) -> tuple[str, str, bool]:
    if all(isinstance(each, bytes | bytearray | memoryview) for each in values):
        octets = b"".join(bytes(each) for each in values if isinstance(each, bytes))
        is_cut = len(octets) > most
        octets = octets[:most]
        try:
            return octets.decode("utf-8", "ignore" if is_cut else "strict"), "text", is_cut
        except UnicodeDecodeError:
            return base64.b64encode(octets).decode(), "base64", is_cut
    text = json.dumps(values[0] if len(values) == 1 else values, default=str, ensure_ascii=False)
    return text[:most], "value", len(text) > most
