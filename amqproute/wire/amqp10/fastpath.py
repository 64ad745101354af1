# SPDX-License-Identifier: Apache-2.0
"""Hand-written reading and writing of transfer, disposition and flow, and reading of header.

These run once per message or per batch. Each reader recognizes the usual encoding - a
numeric descriptor, list8 or list32, the standard's primitive encodings in their places - and
gives None for anything else, right or wrong; the caller then takes the generic path, which
decides. Each writer gives the same bytes as the generic path.

The readers look at bytes without asking first whether there are enough: an ``IndexError`` or a
position past the end is "anything else" too.
"""

from __future__ import annotations

import struct
from typing import Final

from amqproute.wire.amqp10 import codec
from amqproute.wire.amqp10.spec import (
    Accepted,
    DeliveryState,
    Disposition,
    Flow,
    Header,
    Released,
    Transfer,
)
from amqproute.wire.amqp10.types import UInt

_U32 = struct.Struct(">I").unpack_from
_PACK_U32 = struct.Struct(">I").pack
_SIZE_COUNT = struct.Struct(">II").unpack_from
_FRAME_HEADER = struct.Struct(">IBBH")
_TRANSFER_HEAD = struct.Struct(">IBBHIBB").pack
_new = object.__new__

# Small values as their finished encodings.
_UINTS: Final = tuple(codec.encode(UInt(value)) for value in range(256))
_BOOLEANS: Final = {None: b"\x40", False: b"\x42", True: b"\x41"}

# Outcomes without fields have no state: one object stands for all.
ACCEPTED: Final = Accepted()
RELEASED: Final = Released()

_ACCEPTED_BYTES: Final = b"\x00\x53\x24\x45"
_RELEASED_BYTES: Final = b"\x00\x53\x26\x45"
# list8 or list32 of no items: what some clients write for list0.
_STATES_BY_BYTES: Final[dict[bytes, DeliveryState]] = {
    _ACCEPTED_BYTES: ACCEPTED,
    _RELEASED_BYTES: RELEASED,
}
_EMPTY_LIST_8: Final = b"\xc0\x01\x00"
_EMPTY_LIST_32: Final = b"\xd0\x00\x00\x00\x04\x00\x00\x00\x00"


def read_transfer(data: bytes, pos: int, end: int) -> tuple[Transfer, int] | None:
    """Read the transfer whose descriptor starts at ``pos``.

    Returns:
        The transfer and the offset after it, or None when the generic path has to decide.
    """
    try:
        code = data[pos + 3]
        if code == 0xC0:
            after = pos + 5 + data[pos + 4]
            count = data[pos + 5]
            pos += 6
        elif code == 0xD0:
            size, count = _SIZE_COUNT(data, pos + 4)
            after = pos + 8 + size
            pos += 12
        else:
            return None
        if after > end or count > 6 or count == 0:
            return _read_long_transfer(data, pos, after, count) if after <= end else None
        transfer: Transfer = _new(Transfer)

        code = data[pos]  # handle
        if code == 0x43:
            transfer.handle = 0
            pos += 1
        elif code == 0x52:
            transfer.handle = data[pos + 1]
            pos += 2
        elif code == 0x70:
            transfer.handle = _U32(data, pos + 1)[0]
            pos += 5
        else:
            return None

        transfer.delivery_id = None
        if count > 1:
            code = data[pos]
            if code == 0x52:
                transfer.delivery_id = data[pos + 1]
                pos += 2
            elif code == 0x70:
                transfer.delivery_id = _U32(data, pos + 1)[0]
                pos += 5
            elif code == 0x43:
                transfer.delivery_id = 0
                pos += 1
            elif code == 0x40:
                pos += 1
            else:
                return None

        transfer.delivery_tag = None
        if count > 2:
            code = data[pos]
            if code == 0xA0:
                start = pos + 2
                pos = start + data[pos + 1]
                if pos > after or pos - start > 32:
                    return None
                transfer.delivery_tag = data[start:pos]
            elif code == 0x40:
                pos += 1
            else:
                return None

        transfer.message_format = None
        if count > 3:
            code = data[pos]
            if code == 0x43:
                transfer.message_format = 0
                pos += 1
            elif code == 0x40:
                pos += 1
            elif code == 0x52:
                transfer.message_format = data[pos + 1]
                pos += 2
            elif code == 0x70:
                transfer.message_format = _U32(data, pos + 1)[0]
                pos += 5
            else:
                return None

        transfer.settled = None
        transfer.more = False
        if count > 4:
            code = data[pos]
            if code == 0x42:
                transfer.settled = False
                pos += 1
            elif code == 0x41:
                transfer.settled = True
                pos += 1
            elif code == 0x40:
                pos += 1
            elif code == 0x56 and data[pos + 1] < 2:
                transfer.settled = data[pos + 1] == 1
                pos += 2
            else:
                return None
            if count > 5:
                code = data[pos]
                if code == 0x41:
                    transfer.more = True
                    pos += 1
                elif code == 0x42 or code == 0x40:
                    pos += 1
                elif code == 0x56 and data[pos + 1] < 2:
                    transfer.more = data[pos + 1] == 1
                    pos += 2
                else:
                    return None
    except (IndexError, struct.error):
        return None
    if pos != after:
        return None
    transfer.rcv_settle_mode = None
    transfer.state = None
    transfer.resume = False
    transfer.aborted = False
    transfer.batchable = False
    return transfer, after


def _read_long_transfer(
    data: bytes, pos: int, after: int, count: int
) -> tuple[Transfer, int] | None:
    """Read a transfer with fields after ``more``, as long as ``state`` is null."""
    values = _read_values(data, pos, after, count, 11)
    if values is None:
        return None
    handle, delivery_id, tag, message_format, settled, more, mode, state = values[:8]
    resume, aborted, batchable = values[8:]
    if (
        type(handle) is not int
        or (delivery_id is not None and type(delivery_id) is not int)
        or (tag is not None and (type(tag) is not bytes or len(tag) > 32))
        or (message_format is not None and type(message_format) is not int)
        or (settled is not None and type(settled) is not bool)
        or (more is not None and type(more) is not bool)
        or mode is not None
        or state is not None
        or (resume is not None and type(resume) is not bool)
        or (aborted is not None and type(aborted) is not bool)
        or (batchable is not None and type(batchable) is not bool)
    ):
        return None
    transfer: Transfer = _new(Transfer)
    transfer.handle = handle
    transfer.delivery_id = delivery_id
    transfer.delivery_tag = tag
    transfer.message_format = message_format
    transfer.settled = settled
    transfer.more = more is True
    transfer.rcv_settle_mode = None
    transfer.state = None
    transfer.resume = resume is True
    transfer.aborted = aborted is True
    transfer.batchable = batchable is True
    return transfer, after


_Value = int | bool | bytes | None


def _read_values(data: bytes, pos: int, after: int, count: int, length: int) -> list[_Value] | None:
    """Read ``count`` uints, booleans, short binaries and nulls; filled up to ``length``."""
    if count > length:
        return None
    values: list[_Value] = []
    append = values.append
    for _ in range(count):
        code = data[pos]
        if code == 0x52:
            append(data[pos + 1])
            pos += 2
        elif code == 0x70:
            append(_U32(data, pos + 1)[0])
            pos += 5
        elif code == 0x43:
            append(0)
            pos += 1
        elif code == 0x40:
            append(None)
            pos += 1
        elif code == 0x42:
            append(False)
            pos += 1
        elif code == 0x41:
            append(True)
            pos += 1
        elif code == 0xA0:
            start = pos + 2
            pos = start + data[pos + 1]
            append(data[start:pos])
        elif code == 0x56 and data[pos + 1] < 2:
            append(data[pos + 1] == 1)
            pos += 2
        else:
            return None
    if pos != after:
        return None
    while len(values) < length:
        append(None)
    return values


def read_flow(data: bytes, pos: int, end: int) -> tuple[Flow, int] | None:
    """Read the flow whose descriptor starts at ``pos``; None as for `read_transfer`."""
    try:
        code = data[pos + 3]
        if code == 0xC0:
            after = pos + 5 + data[pos + 4]
            count = data[pos + 5]
            pos += 6
        elif code == 0xD0:
            size, count = _SIZE_COUNT(data, pos + 4)
            after = pos + 8 + size
            pos += 12
        else:
            return None
        if after > end:
            return None
        values = _read_values(data, pos, after, count, 11)
    except (IndexError, struct.error):
        return None
    if values is None:
        return None
    drain, echo, properties = values[8:]
    if properties is not None:
        return None
    for value in values[:8]:
        if value is not None and type(value) is not int:
            return None
    if (drain is not None and type(drain) is not bool) or (
        echo is not None and type(echo) is not bool
    ):
        return None
    flow: Flow = _new(Flow)
    next_incoming_id, incoming, next_outgoing_id, outgoing, handle = values[:5]
    if incoming is None or next_outgoing_id is None or outgoing is None:
        return None
    flow.next_incoming_id = next_incoming_id  # type: ignore[assignment]
    flow.incoming_window = incoming  # type: ignore[assignment]
    flow.next_outgoing_id = next_outgoing_id  # type: ignore[assignment]
    flow.outgoing_window = outgoing  # type: ignore[assignment]
    flow.handle = handle  # type: ignore[assignment]
    flow.delivery_count, flow.link_credit, flow.available = values[5:8]  # type: ignore[assignment]
    flow.drain = drain is True
    flow.echo = echo is True
    flow.properties = None
    return flow, after


def read_disposition(data: bytes, pos: int, end: int) -> tuple[Disposition, int] | None:
    """Read the disposition whose descriptor starts at ``pos``; None as for `read_transfer`.

    The state is read when it is accepted or released; others are the generic path's.
    """
    try:
        code = data[pos + 3]
        if code == 0xC0:
            after = pos + 5 + data[pos + 4]
            count = data[pos + 5]
            pos += 6
        elif code == 0xD0:
            size, count = _SIZE_COUNT(data, pos + 4)
            after = pos + 8 + size
            pos += 12
        else:
            return None
        if after > end or count > 6 or count < 2:
            return None
        disposition: Disposition = _new(Disposition)

        code = data[pos]  # role
        if code == 0x41:
            disposition.role = True
            pos += 1
        elif code == 0x42:
            disposition.role = False
            pos += 1
        elif code == 0x56 and data[pos + 1] < 2:
            disposition.role = data[pos + 1] == 1
            pos += 2
        else:
            return None

        code = data[pos]  # first
        if code == 0x70:
            disposition.first = _U32(data, pos + 1)[0]
            pos += 5
        elif code == 0x52:
            disposition.first = data[pos + 1]
            pos += 2
        elif code == 0x43:
            disposition.first = 0
            pos += 1
        else:
            return None

        disposition.last = None
        if count > 2:
            code = data[pos]
            if code == 0x70:
                disposition.last = _U32(data, pos + 1)[0]
                pos += 5
            elif code == 0x52:
                disposition.last = data[pos + 1]
                pos += 2
            elif code == 0x40:
                pos += 1
            elif code == 0x43:
                disposition.last = 0
                pos += 1
            else:
                return None

        disposition.settled = False
        if count > 3:
            code = data[pos]
            if code == 0x41:
                disposition.settled = True
                pos += 1
            elif code == 0x42 or code == 0x40:
                pos += 1
            elif code == 0x56 and data[pos + 1] < 2:
                disposition.settled = data[pos + 1] == 1
                pos += 2
            else:
                return None

        disposition.state = None
        if count > 4:
            state = _STATES_BY_BYTES.get(data[pos : pos + 4])
            if state is not None:
                disposition.state = state
                pos += 4
            elif data[pos] == 0x40:
                pos += 1
            else:
                if data[pos + 3 : pos + 6] == _EMPTY_LIST_8:
                    size = 3
                elif data[pos + 3 : pos + 12] == _EMPTY_LIST_32:
                    size = 9
                else:
                    return None
                state = _STATES_BY_BYTES.get(data[pos : pos + 3] + b"\x45")
                if state is None:
                    return None
                disposition.state = state
                pos += 3 + size

        disposition.batchable = False
        if count > 5:
            code = data[pos]
            if code == 0x41:
                disposition.batchable = True
                pos += 1
            elif code == 0x42 or code == 0x40:
                pos += 1
            elif code == 0x56 and data[pos + 1] < 2:
                disposition.batchable = data[pos + 1] == 1
                pos += 2
            else:
                return None
    except (IndexError, struct.error):
        return None
    if pos != after:
        return None
    return disposition, after


def read_header(data: bytes, pos: int, end: int) -> tuple[Header, int] | None:
    """Read the message header whose descriptor starts at ``pos``; None as for `read_transfer`."""
    try:
        code = data[pos + 3]
        if code != 0xC0:
            return None
        after = pos + 5 + data[pos + 4]
        count = data[pos + 5]
        pos += 6
        if after > end or count > 5:
            return None
        header: Header = _new(Header)

        header.durable = False
        if count > 0:
            code = data[pos]
            if code == 0x41:
                header.durable = True
            elif code != 0x42 and code != 0x40:
                return None
            pos += 1

        header.priority = 4
        if count > 1:
            code = data[pos]
            if code == 0x50:
                header.priority = data[pos + 1]
                pos += 2
            elif code == 0x40:
                pos += 1
            else:
                return None

        header.ttl = None
        if count > 2:
            code = data[pos]
            if code == 0x40:
                pos += 1
            elif code == 0x70:
                header.ttl = _U32(data, pos + 1)[0]
                pos += 5
            elif code == 0x52:
                header.ttl = data[pos + 1]
                pos += 2
            elif code == 0x43:
                header.ttl = 0
                pos += 1
            else:
                return None

        header.first_acquirer = False
        if count > 3:
            code = data[pos]
            if code == 0x41:
                header.first_acquirer = True
            elif code != 0x42 and code != 0x40:
                return None
            pos += 1

        header.delivery_count = 0
        if count > 4:
            code = data[pos]
            if code == 0x52:
                header.delivery_count = data[pos + 1]
                pos += 2
            elif code == 0x70:
                header.delivery_count = _U32(data, pos + 1)[0]
                pos += 5
            elif code == 0x43 or code == 0x40:
                pos += 1
            else:
                return None
    except (IndexError, struct.error):
        return None
    if pos != after:
        return None
    return header, after


def write_transfer(
    channel: int,
    handle: int,
    delivery_id: int | None,
    delivery_tag: bytes | None,
    message_format: int | None,
    settled: bool | None,
    more: bool,
    payload_size: int,
    state: DeliveryState | None = None,
    aborted: bool = False,
    resume: bool = False,
    rcv_settle_mode: int | None = None,
    batchable: bool = False,
) -> bytes:
    """Encode frame header and transfer; ``payload_size`` bytes of payload are to follow.

    The engine's own numbers are trusted to be in range.

    Raises:
        LocalProtocolError: the delivery-tag is longer than 32 octets.
    """
    if (
        state is not None
        or aborted
        or resume
        or batchable
        or rcv_settle_mode is not None
        or delivery_tag is None
        or len(delivery_tag) > 32
        or delivery_id is None
        or message_format is None
    ):
        body = codec.encode(
            Transfer(
                handle=handle,
                delivery_id=delivery_id,
                delivery_tag=delivery_tag,
                message_format=message_format,
                settled=settled,
                more=more,
                rcv_settle_mode=rcv_settle_mode,
                state=state,
                resume=resume,
                aborted=aborted,
                batchable=batchable,
            )
        )
        return _FRAME_HEADER.pack(8 + len(body) + payload_size, 2, 0, channel) + body
    fields = b"%b%b\xa0%c%b%b" % (
        _UINTS[handle] if 0 <= handle < 256 else b"\x70" + _PACK_U32(handle),
        _UINTS[delivery_id] if 0 <= delivery_id < 256 else b"\x70" + _PACK_U32(delivery_id),
        len(delivery_tag),
        delivery_tag,
        _UINTS[message_format]
        if 0 <= message_format < 256
        else b"\x70" + _PACK_U32(message_format),
    )
    if more:
        fields += _BOOLEANS[settled] + b"\x41"
        count = 6
    elif settled is not None:
        fields += _BOOLEANS[settled]
        count = 5
    else:
        count = 4
    size = len(fields)
    return (
        _TRANSFER_HEAD(14 + size + payload_size, 2, 0, channel, 0x005314C0, size + 1, count)
        + fields
    )


def write_disposition(
    channel: int,
    role: bool,
    first: int,
    last: int | None,
    settled: bool,
    state: object = None,
    batchable: bool = False,
) -> bytes:
    """Encode a whole disposition frame; the engine's own numbers are trusted."""
    if type(state) is Accepted:
        state_bytes = _ACCEPTED_BYTES
    elif type(state) is Released:
        state_bytes = _RELEASED_BYTES
    elif state is None and settled:
        state_bytes = b""
    else:
        state_bytes = b"\x00"
    if batchable or state_bytes == b"\x00":
        body = codec.encode(
            Disposition(
                role=role,
                first=first,
                last=last,
                settled=settled,
                state=state,  # type: ignore[arg-type]  # by its own type
                batchable=batchable,
            )
        )
        return _FRAME_HEADER.pack(8 + len(body), 2, 0, channel) + body
    fields = b"%b%b%b%b%b" % (
        b"\x41" if role else b"\x42",
        _UINTS[first] if 0 <= first < 256 else b"\x70" + _PACK_U32(first),
        b"\x40" if last is None else _UINTS[last] if 0 <= last < 256 else b"\x70" + _PACK_U32(last),
        b"\x41" if settled else b"\x40",
        state_bytes,
    )
    size = len(fields)
    return (
        _TRANSFER_HEAD(14 + size, 2, 0, channel, 0x005315C0, size + 1, 5 if state_bytes else 4)
        + fields
    )


__all__ = [
    "ACCEPTED",
    "RELEASED",
    "read_disposition",
    "read_flow",
    "read_header",
    "read_transfer",
    "write_disposition",
    "write_transfer",
]
