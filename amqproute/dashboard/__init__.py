# SPDX-License-Identifier: Apache-2.0
"""The dashboard: pages for operators in a browser, made by the daemon.

Theory of operation
===================

A page is a value (`page_blocks`): a title and a list of blocks, such as tables, facts, charts and
forms. The modules ``*_pages`` turn rows of management into blocks and know nothing of HTML; the
templates turn blocks into HTML and know nothing of brokers. All text is escaped by the template
engine, and characters that a browser would act upon are shown as their codes (`html_renderer`), so
that no page has to think of hostile names.

The rows come from the operations of management, asked with the rights of the user who has logged in
(`questions.Questions`). There is no second way to the broker: what the user may not see over AMQP,
no page shows.

Everything works without JavaScript: links, filters, pages of a table, and actions are plain links
and forms. An action is shown first (with a dry run where the operation has one) and carried out
after a confirmation (`page_actions`).

With JavaScript a page is live. The daemon makes it again once a second for each browser, and sends
what has changed since the browser got it (`shown_pages`): rows that are new or different, the order
of rows, or a block (`live_changes`). The script replaces the elements of these ids. So there is one
way of making a page, and no second one in another language.

The browser gets no inline script or style, and nothing from another host: charts are SVG elements
with attributes, made here (`line_chart`).

No page lists everything: tables are divided by cursor and filter, `ROWS_SHOWN` rows each, and a
part costs what it shows. STATUS, which looks at everything, is remembered for seconds
(`status_memory`).
"""

__all__: list[str] = []
