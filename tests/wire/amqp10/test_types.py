# SPDX-License-Identifier: Apache-2.0
"""Tests of `amqproute.wire.amqp10.types`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from amqproute.wire.amqp10 import types
from amqproute.wire.amqp10.types import Array, Char, Decimal64, Described, Float, Symbol, UInt


class TypesTests(SynchronousTestCase):
    def test_equal_to_the_plain_python_value(self) -> None:
        """Symbols and integers compare and hash as what they are made of."""
        self.assertEqual(Symbol("product"), "product")
        self.assertEqual({Symbol("product"): 1}["product"], 1)
        self.assertEqual(UInt(7), 7)

    def test_the_type_shows(self) -> None:
        """repr tells the AMQP type, str tells the value."""
        self.assertEqual(repr(UInt(7)), "UInt(7)")
        self.assertEqual(f"{UInt(7)}", "7")
        self.assertEqual(str(UInt(7)), "7")
        self.assertEqual(repr(Symbol("a")), "Symbol('a')")
        self.assertEqual(repr(Described(UInt(1), None)), "Described(UInt(1), None)")
        self.assertEqual(repr(Array(0x50, [1])), "Array(0x50, (1,))")

    def test_float_is_rounded_when_made(self) -> None:
        """Held values are those that the wire can carry."""
        self.assertNotEqual(Float(0.1), 0.1)
        self.assertEqual(Float(Float(0.1)), Float(0.1))
        self.assertRaises(OverflowError, Float, 1e300)

    def test_widths_are_checked(self) -> None:
        """A char is one character, a decimal its octets."""
        self.assertRaises(ValueError, Char, "ab")
        self.assertRaises(ValueError, Char, "")
        self.assertRaises(ValueError, Decimal64, b"1234567")

    def test_symbol_arrays_choose_the_width(self) -> None:
        """sym8 as long as all fit, else sym32."""
        self.assertEqual(Array.of_symbols(["a", "b"]).code, types.SYMBOL_8)
        self.assertEqual(Array.of_symbols(["a" * 255]).code, types.SYMBOL_8)
        self.assertEqual(Array.of_symbols(["a", "b" * 256]).code, types.SYMBOL_32)

    def test_equality_of_the_compound_types(self) -> None:
        """Described and Array compare by value; an array is no map key."""
        self.assertEqual(Described(UInt(1), [2]), Described(UInt(1), [2]))
        self.assertNotEqual(Described(UInt(1), [2]), Described(UInt(2), [2]))
        self.assertEqual(Array(0x50, [1]), Array(0x50, (1,)))
        self.assertNotEqual(Array(0x50, [1]), Array(0x60, [1]))
        self.assertNotEqual(Array(0x50, [1]), (1,))
        self.assertRaises(TypeError, hash, Array(0x50, [1]))
