# SPDX-License-Identifier: Apache-2.0
"""Parts that the pages of long lists share: addresses of the parts of a list, and its filter."""

from __future__ import annotations

from amqproute.dashboard.display_units import address
from amqproute.dashboard.management_source import RowPage
from amqproute.dashboard.page_blocks import Block, FilterForm, FormField, Note

__all__ = ["filter_by_name_and_host", "filter_field", "noted_refusal", "part_addresses"]


def part_addresses(page: str, is_first: bool, cursor: str, **query: str) -> tuple[str, str]:
    """Return the addresses of the first and of the next part of a list.

    Args:
        page: the page as for `address`.
        is_first: whether the part that is shown is the first; its address is empty then.
        cursor: the cursor of the next part; empty on the last, whose next address is empty.
        query: the parameters that restrict the list.
    """
    first = "" if is_first else address(page, **query)
    return first, address(page, **query, cursor=cursor) if cursor else ""


def filter_field(value: str, label: str = "Name contains") -> FormField:
    """Return the field that restricts a list to names with a text in them."""
    return FormField("contains", label, value, "search")


def filter_by_name_and_host(
    page: str, contains: str, host: str, label: str = "Name contains"
) -> FilterForm:
    """Return the form that restricts a list to names and to a virtual host."""
    host_field = FormField("host", "Virtual host", host, "search")
    return FilterForm(address(page), [filter_field(contains, label), host_field])


def noted_refusal(rows: RowPage) -> list[Block]:
    """Return the note of why a list could not be read; none if it could."""
    return [Note("refused", rows.refused, "bad")] if rows.refused else []
