# SPDX-License-Identifier: Apache-2.0
"""The HTTP service: what programs and browsers see of the broker.

Theory of operation
===================
One endpoint of its own (``management.http``), HTTP/1.1 on `twisted.web`, with TLS by the
certificate that AMQP listeners show::

    http_listener   admits connections: in all, and by address; takes clients' addresses from
                    balancers (`amqproute.net.proxy_header_reader`)
    http_channel    reads requests within bounds and deadlines, writes answers
    client_memory   memory that connections hold, by address
    handshake_turns steps of TLS handshakes, which wait for their turn
    site            finds the resource, checks rights of log-in, form and rate; makes problems
    login           who asks: Basic, bearer token, client certificate, unix socket, session
    sessions        log-ins of browsers
    request_rates   requests of an address and of a user
    http_messages   requests, answers and problems as values
    event_stream    server-sent events, with bounds
    journal_feed    the journal as server-sent events; `journal_stretch` resumes them
    management_api  ``/api/v1``, from the definition of management; `openapi` describes it
    rabbitmq_api    a part of RabbitMQ's API, to read only, if the configuration asks for it

A handler is given a `HttpRequest` and returns a `HttpResponse`, or a Deferred of one, or raises
`HttpProblem`; it never sees a socket. Components declare what they serve as `HttpResource`, a
pattern with a handler for each method, or mount a handler below a path (`HttpSite.mount`). Unknown
paths, wrong methods, HEAD and OPTIONS, forms that are not spoken (406, 415), entity tags and the
headers of every answer are the site's business.

Whether somebody may do something is decided below: management requests go through the code that
answers them on ``$management``, with the same access rules.

Security
========
Passwords and tokens are taken only where nobody can listen: with TLS, on a unix socket, or on
loopback. A balancer, which names its clients by the PROXY protocol, makes nothing private: through
it, only TLS of our own does. A request that changes something and comes from a browser has to come
from our own pages: ``Sec-Fetch-Site`` and ``Origin`` are checked whatever the log-in, and a session
needs its CSRF token as well. Every answer forbids scripts from elsewhere, frames, and guessing of
types.

Limits
======
=========================  ==========  ================================================
limit                      default     at the limit
=========================  ==========  ================================================
connections                1,000       who has fewer than others takes the place of an
                                       idle one; others are closed at once
of an address              200         closed at once
new ones of an address     200 /s      closed at once
without a PROXY header     a tenth     closed at once; balancers have 20 s to send it
header of a request        16 KiB      431
body of a request          1 MiB       413
time for a request         20 s        408
parts of a path            64          400
chunks of a body           1,000       400 if they have fewer than 64 octets on average
requests of a connection   1           in a turn of the reactor; the next one waits for the
                                       answer to be read, and for a second after a 429
unread, in all             128 MiB     bodies, reads that wait, answers: the address with the
                                       most loses its oldest connection
processor                  half        of the time while messages pass: steps of a millisecond
idle connection            60 s        closed
requests of an address     100 /s      429, with Retry-After
requests of a user         100 /s      429, with Retry-After
requests that wait         2,000       503, with Retry-After
of an address              200         503, with Retry-After
event streams              500         503, with Retry-After
unread events of a stream  256 KiB     the stream ends, and the client connects again
records that were missed   10,000      an event ``omitted`` has the number of earlier ones
sessions                   1,000       the one idle for longest ends
=========================  ==========  ================================================

Why so
======
*Not* `twisted.web.resource`: a tree of objects decodes paths before it splits them, so that the
name of a queue could not contain a slash, and knows neither patterns nor what a method takes, from
which documents are made.
"""

__all__: list[str] = []
