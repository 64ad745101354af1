# SPDX-License-Identifier: Apache-2.0
"""Methods and properties as octets, against the facts and an independent decoder."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import LocalProtocolError
from amqproute.wire.amqp09 import field_tables, methods
from amqproute.wire.amqp09.arguments import (
    decode_method,
    decode_properties,
    encode_method,
    encode_properties,
    read_ack,
    read_publish,
)
from amqproute.wire.amqp09.field_tables import FieldTable
from amqproute.wire.amqp09.replies import REPLY_TEXT_OCTETS, ReplyCode, fit_reply_text
from amqproute.wire.amqp09.shapes import AmqpMethod, FieldKind, InlineBody
from amqproute.wire.amqp09.versions import ProtocolVersion
from amqproute.wire.amqp09.violations import RULES, Violation, ViolationError
from tests.support import plain_amqp09 as plain
from tests.wire.amqp09.generate import class_name, module, python_name
from tests.wire.amqp09.test_field_tables import FEW

V09 = ProtocolVersion.V0_9
V091 = ProtocolVersion.V0_9_1

SHORT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "bit": st.integers(0, 1),
    "octet": st.integers(0, 255),
    "short": st.integers(0, 0xFFFF),
    "long": st.integers(0, 0xFFFFFFFF),
    "longlong": st.integers(0, (1 << 64) - 1),
    "timestamp": st.integers(0, (1 << 64) - 1),
    "shortstr": SHORT,
    "longstr": st.binary(max_size=20),
    "table": FEW,
    "content": st.tuples(st.integers(0, 1), st.binary(max_size=20)),
}


@st.composite
def arguments(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """Draw a method with its arguments."""
    name = draw(st.sampled_from(sorted(plain.IDS)))
    return name, {field: draw(KINDS[kind]) for field, kind in plain.FIELDS[name].items()}


@st.composite
def properties(draw: st.DrawFn) -> tuple[int, dict[str, Any]]:
    """Draw a class of content with some of its properties."""
    class_id = draw(st.sampled_from(sorted(plain.PROPERTIES)))
    fields = plain.PROPERTIES[class_id]
    names = draw(st.lists(st.sampled_from(sorted(fields)), unique=True))
    return class_id, {name: draw(KINDS[fields[name]]) for name in names}


def as_product(kind: str, value: Any) -> Any:
    """Return a plain value as the product has it."""
    if kind == "bit":
        return bool(value)
    if kind == "table":
        return FieldTable.from_octets(plain.pair_octets(value))
    if kind == "content":
        return InlineBody(value[1], bool(value[0]))
    return value


class GeneratedTests(SynchronousTestCase):
    """The module of methods is what the facts give."""

    def test_made_of_the_facts(self) -> None:
        """Made again it is the same."""
        path = Path(methods.__file__)
        made, there = ast.parse(module(plain.FACTS)), ast.parse(path.read_text(encoding="utf-8"))
        self.assertEqual(ast.dump(made), ast.dump(there))

    def test_every_fact(self) -> None:
        """Each method has its ids, fields, direction and replies; nothing stands twice."""
        self.assertEqual(len(methods.METHODS), len(plain.IDS))
        for each in plain.FACTS["classes"]:
            for name, number, receiver, replies, flags, fields in each["methods"]:
                traits = methods.METHODS[each["id"] << 16 | number].traits
                self.assertEqual(traits.name, f"{each['name']}.{name}")
                self.assertEqual(
                    traits.layout,
                    tuple((python_name(f), FieldKind(kind)) for f, kind in fields.items()),
                )
                self.assertEqual(traits.to_server, receiver != "client", traits.name)
                self.assertEqual(traits.to_client, receiver != "server", traits.name)
                self.assertEqual(traits.only_0_9, "only-09" in flags)
                self.assertEqual(traits.has_content, "content" in flags)
                self.assertEqual(
                    traits.replies,
                    {methods.METHODS[each["id"] << 16 | plain.IDS[f"{each['name']}.{r}"][1]]
                     .traits.code for r in replies},
                )  # fmt: skip
        for class_id, names in plain.PROPERTIES.items():
            self.assertEqual(
                [name for name, _ in methods.PROPERTIES[class_id].layout],
                [python_name(name) for name in names],
            )

    def test_ids_of_the_extensions(self) -> None:
        """09: part 4.5: the ids that other implementations use."""
        for name, ids in {
            "connection.blocked": (10, 60), "connection.unblocked": (10, 61),
            "connection.update-secret": (10, 70), "connection.update-secret-ok": (10, 71),
            "exchange.bind": (40, 30), "exchange.bind-ok": (40, 31), "exchange.unbind": (40, 40),
            "exchange.unbind-ok": (40, 51), "confirm.select": (85, 10),
            "confirm.select-ok": (85, 11), "basic.nack": (60, 120), "exchange.bound": (40, 22),
            "basic.recover": (60, 100), "basic.recover-sync": (60, 110),
            "basic.recover-ok": (60, 111), "basic.qpid-recover-sync": (60, 102),
        }.items():  # fmt: skip
            self.assertEqual(plain.IDS[name], ids)
            self.assertEqual(methods.METHODS[ids[0] << 16 | ids[1]].traits.name, name)

    def test_reply_codes(self) -> None:
        """09-ERR-01 ... -21: each constant has its number and its scope."""
        for name, (value, error) in plain.FACTS["constants"].items():
            if error == "none":
                continue
            code = ReplyCode(value)
            self.assertEqual(code.name, name.upper().replace("-", "_"))
            self.assertEqual(code.scope.value, error)
        self.assertEqual(set(RULES), set(Violation))


class MethodTests(SynchronousTestCase):
    """Octets of methods."""

    @given(arguments())
    def test_any_method(self, drawn: tuple[str, dict[str, Any]]) -> None:
        """Read as the plain decoder wrote it, and written to the same octets."""
        name, given_ = drawn
        octets = plain.method_octets(name, given_)
        method = decode_method(octets, V09)
        self.assertEqual(type(method).__name__, class_name(*name.split(".")))
        for field, kind in plain.FIELDS[name].items():
            self.assertEqual(getattr(method, python_name(field)), as_product(kind, given_[field]))
        self.assertEqual(encode_method(method, V09), octets)
        self.assertEqual(plain.method(octets), (name, given_))

    @given(arguments())
    def test_reserved_fields(self, drawn: tuple[str, dict[str, Any]]) -> None:
        """09: part 4.3: 0-9-1 sends them empty and ignores them, and lacks what it has removed."""
        name, given_ = drawn
        octets = plain.method_octets(name, given_)
        if "only-09" in plain.FLAGS[name]:
            with self.assertRaises(ViolationError) as caught:
                decode_method(octets, V091)
            kept = plain.IDS[name][0] in (10, 20, 30, 40, 50, 60)
            violation = Violation.UNKNOWN_METHOD if kept else Violation.UNKNOWN_CLASS
            self.assertIs(caught.exception.violation, violation)
            with self.assertRaises(LocalProtocolError):
                encode_method(decode_method(octets, V09), V091)
            return
        method = decode_method(octets, V091)
        method_09 = decode_method(octets, V09)
        reserved = {"ticket"} if plain.RECEIVER[name] == "server" else set()
        reserved |= {
            "connection.open": {"capabilities", "insist"}, "connection.open-ok": {"known-hosts"},
            "channel.open": {"out-of-band"}, "channel.open-ok": {"channel-id"},
            "basic.get-empty": {"cluster-id"},
        }.get(name, set())  # fmt: skip
        for field in plain.FIELDS[name]:
            if field in reserved:
                self.assertFalse(getattr(method, python_name(field)))
        _, written = plain.method(encode_method(method_09, V091))
        for field, value in given_.items():
            self.assertEqual(written[field], type(value)() if field in reserved else value)

    def test_bits(self) -> None:
        """09: part 3.3: the check value of exchange.declare; bits fill octets from the lowest."""
        octets = bytes.fromhex("0028000A 0000 01 65 06 646972656374 12 00000000")
        declare = decode_method(octets, V091)
        expected = methods.ExchangeDeclare(exchange="e", type="direct", durable=True, nowait=True)
        self.assertEqual(declare, expected)
        self.assertEqual(encode_method(expected, V091), octets)

    def test_cut_short(self) -> None:
        """09-ERR-14: arguments that end too early, or too late, cannot be decoded."""
        for name, fields in plain.FIELDS.items():
            octets = plain.method_octets(name)
            for end in range(len(octets)):
                with self.assertRaises(ViolationError):
                    decode_method(octets[:end], V09)
            with self.assertRaises(ViolationError) as caught:
                decode_method(octets + b"\0", V09)
            self.assertIs(caught.exception.violation, Violation.MALFORMED_FRAME, fields)

    def test_illegal_values(self) -> None:
        """09-ERR-15: a short string that is no UTF-8 or has a NUL, a broken table, a third body."""
        declare = plain.method_octets("queue.declare", queue="abc")
        transfer = plain.method_octets("message.transfer", body=(1, b"ref"))
        for octets in (
            declare.replace(b"abc", b"a\xffc"), declare.replace(b"abc", b"a\0c"),
            declare[:-4] + b"\0\0\0\x02\x01a", declare[:-4] + b"\0\0\0\x04\x01aZ\0",
            transfer[:-8] + b"\x02" + transfer[-7:],
        ):  # fmt: skip
            with self.assertRaises(ViolationError) as caught:
                decode_method(octets, V09)
            self.assertIs(caught.exception.violation, Violation.ILLEGAL_VALUE)

    def test_wrong_values_of_ours(self) -> None:
        """Values that do not fit are our error, and never written."""
        for method in (
            methods.QueueDeclare(queue="q" * 256), methods.QueueDeclare(queue="a\0"),
            methods.BasicQos(prefetch_count=70000), methods.BasicAck(delivery_tag=-1),
            methods.QueueDeclare(queue="\ud800"),
        ):  # fmt: skip
            with self.assertRaises(LocalProtocolError):
                encode_method(method, V091)

    @given(st.one_of(arguments(), st.just(None)), st.binary(max_size=40), st.sampled_from(
        [V09, V091]))  # fmt: skip
    def test_fast_publish(self, drawn: Any, tail: bytes, version: ProtocolVersion) -> None:
        """The short way for basic.publish gives what the layouts give, or leaves it to them."""
        start = plain.method_octets("basic.publish")[:4]
        for octets in (start + tail, start + b"\0\1\1e\2kk\3", start + b"\0\1\1e\2k\xff\3"):
            fast = read_publish(octets, version)
            if fast is not None:
                self.assertEqual(fast, decode_method(octets, version))

    @given(arguments())
    def test_fast_publish_of_the_right_ones(self, drawn: tuple[str, dict[str, Any]]) -> None:
        """Every right publish and ack takes the short way."""
        _, given_ = drawn
        shared = {k: v for k, v in given_.items() if k in plain.FIELDS["basic.publish"]}
        octets = plain.method_octets("basic.publish", shared)
        for version in (V09, V091):
            self.assertEqual(read_publish(octets, version), decode_method(octets, version))
        tag = given_.get("delivery-tag", 7)
        octets = plain.method_octets("basic.nack", {"delivery-tag": tag, "requeue": 1})
        self.assertEqual(read_ack(octets, 0, len(octets)), (tag, 2))

    @given(st.binary(max_size=50), st.sampled_from(sorted(plain.IDS)))
    def test_arbitrary_octets(self, tail: bytes, name: str) -> None:
        """Octets are a method or a violation, and nothing else."""
        for octets in (tail, plain.method_octets(name)[:4] + tail):
            try:
                method = decode_method(octets, V09)
            except ViolationError:
                continue
            self.assertIsInstance(method, AmqpMethod)


class PropertyTests(SynchronousTestCase):
    """Octets of content headers."""

    @given(properties())
    def test_any_properties(self, drawn: tuple[int, dict[str, Any]]) -> None:
        """09-W-20, 09-W-21, 09-W-27: flags in order, absent is not empty, the same octets again."""
        class_id, given_ = drawn
        octets = plain.property_octets(class_id, given_)
        found = decode_properties(class_id, octets)
        for name, kind in plain.PROPERTIES[class_id].items():
            value = getattr(found, python_name(name))
            if name in given_:
                self.assertEqual(value, as_product(kind, given_[name]))
                self.assertIsNotNone(value)
            else:
                self.assertIsNone(value)
        self.assertEqual(encode_properties(found), octets)

    def test_check_value(self) -> None:
        """09: part 3.4: content-type, delivery-mode, app-id and cluster-id."""
        octets = bytes.fromhex("900C 0178 02 017A 0163")
        found = methods.BasicProperties(
            content_type="x", delivery_mode=2, app_id="z", cluster_id="c"
        )
        self.assertEqual(decode_properties(60, octets), found)
        self.assertEqual(encode_properties(found), octets)

    def test_unknown_flags(self) -> None:
        """09-W-20: a flag without a property, and a second word of flags, are illegal."""
        for class_id, names in plain.PROPERTIES.items():
            for bit in range(16 - len(names)):
                with self.assertRaises(ViolationError) as caught:
                    decode_properties(class_id, (1 << bit).to_bytes(2, "big") + bytes(30))
                self.assertIs(caught.exception.violation, Violation.ILLEGAL_VALUE)

    @given(st.sampled_from(sorted(plain.PROPERTIES)), st.binary(max_size=40))
    def test_arbitrary_octets(self, class_id: int, octets: bytes) -> None:
        """Octets are properties or a violation, and nothing else."""
        try:
            found = decode_properties(class_id, octets)
        except ViolationError:
            return
        if "headers" not in plain.PROPERTIES[class_id] or found.headers is None:  # type: ignore[attr-defined]
            self.assertEqual(encode_properties(found), octets)


class ReplyTextTests(SynchronousTestCase):
    """`amqproute.wire.amqp09.replies.fit_reply_text`."""

    @given(st.text(max_size=400))
    def test_cut(self, text: str) -> None:
        """09-W-63: at most 255 octets of UTF-8, cut between characters."""
        found = fit_reply_text(text)
        self.assertLessEqual(len(found.encode()), REPLY_TEXT_OCTETS)
        self.assertNotIn("\0", found)
        whole = text.replace("\0", " ").encode("utf-8", "replace").decode()
        self.assertTrue(whole.startswith(found))
        if len(whole.encode()) > REPLY_TEXT_OCTETS:
            self.assertGreater(len(found.encode()), REPLY_TEXT_OCTETS - 4)

    def test_tables_are_hashed_by_names(self) -> None:
        """Equal tables with other tags hash alike."""
        one = FieldTable({"a": field_tables.Int8(1)})
        self.assertEqual(one, FieldTable({"a": 1}))
        self.assertEqual(hash(one), hash(FieldTable({"a": 1})))
        self.assertNotEqual(one, "a")
