# SPDX-License-Identifier: Apache-2.0
"""Decimals of IEEE 754-2008 in binary integer encoding, as in AMQP 1.0 (part 1 §1.6.13).

An encoding is a sign, a biased exponent and an integer, the coefficient::

              exponent   bias   bits of the coefficient
    decimal32    8 bits    101   23, or 3 and 21 more
    decimal64   10 bits    398   53, or 3 and 51 more
    decimal128  14 bits   6176   113

If the two bits after the sign are set, the exponent is two bits further on and the coefficient
begins with ``100``. If the two bits after those are set as well, it is not a number.
"""

from __future__ import annotations

from decimal import Context, Decimal
from typing import Final

from amqproute.wire.amqp10.types import Decimal32, Decimal64, Decimal128

_EXPONENT_BITS: Final = {4: 8, 8: 10, 16: 14}
_BIAS: Final = {4: 101, 8: 398, 16: 6176}
_MOST_DIGITS: Final = {4: 7, 8: 16, 16: 34}
_EXACT: Final = Context(prec=60, Emin=-99999, Emax=99999)


def decimal64_octets(scale: int, value: int) -> bytes:
    """Encode ``value`` divided by ten to the power of ``scale``.

    Args:
        scale: 0 to 255.
        value: less than 2**53, without its sign.
    """
    sign = 1 << 63 if value < 0 else 0
    return (sign | (_BIAS[8] - scale) << 53 | abs(value)).to_bytes(8, "big")


def decimal_number(octets: Decimal32 | Decimal64 | Decimal128) -> Decimal | str:
    """Return the number; for an infinity or NaN its name."""
    size = len(octets)
    bits = int.from_bytes(octets, "big")
    width = 8 * size
    sign = bits >> width - 1
    exponent_bits = _EXPONENT_BITS[size]
    if bits >> width - 3 & 3 != 3:
        coefficient_bits = width - 1 - exponent_bits
        exponent = bits >> coefficient_bits & (1 << exponent_bits) - 1
        coefficient = bits & (1 << coefficient_bits) - 1
    elif bits >> width - 5 & 3 == 3:
        return "NaN" if bits >> width - 6 & 1 else ("-Infinity" if sign else "Infinity")
    else:
        coefficient_bits = width - 3 - exponent_bits
        exponent = bits >> coefficient_bits & (1 << exponent_bits) - 1
        coefficient = bits & (1 << coefficient_bits) - 1 | 4 << coefficient_bits
    if coefficient >= 10 ** _MOST_DIGITS[size]:
        coefficient = 0  # The standard reads an integer with too many digits as zero.
    number = Decimal(-coefficient if sign else coefficient)
    return number.scaleb(exponent - _BIAS[size], _EXACT)


__all__ = ["decimal64_octets", "decimal_number"]
