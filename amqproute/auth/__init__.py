# SPDX-License-Identifier: Apache-2.0
"""Who are you, and what may you do.

Theory of operation
-------------------
A listener asks its `amqproute.auth.realm.Authenticator` which SASL mechanisms to offer on a
connection, given the facts of its transport: TLS or not, the names out of a verified client
certificate, the user id at the other end of a unix socket. The client picks one; the machine of
`amqproute.wire.mechanisms` runs; the authenticator turns its credentials into a
`amqproute.values.Principal`:

    certificate and EXTERNAL    -> peer:beta.example     another organization's broker
    unix socket and EXTERNAL    -> uid:1000              somebody on this machine
    SCRAM-SHA-256 or PLAIN      -> user:ann              a line of the users file
    ANONYMOUS                   -> anonymous             nobody

From then on the principal alone counts: `amqproute.auth.policy.AccessPolicy` answers whether it
may do something to a node, out of the configuration's ``access`` rules, first match wins and the
default is to refuse. A rule knows seven verbs:

    publish      attach as a sender, or put a message, to a node
    consume      attach as a receiver and take messages
    browse       attach as a receiver and look only
    create       make a node, also a dynamic one
    transfer     hand over a message as a peer does, for this address
    manage       read what `$management` shows (a rule for that name); change the node there
    impersonate  send messages whose user-id is this name, and not the sender's own

The node that a rule names is the address as attached (``orders``, ``@b.test``,
``amqp$transfer``); for services and for the null target it is asked once more about each
message's own ``to``. Thus a user may be given the alias ``@b.test`` without the raw service
node. Whether a *peer* may have mail relayed to a third domain is no rule here but the peer's
``relay-for``.

The users file
--------------
YAML, a user a key, with salted SCRAM keys and never a password; written by ``amqproute user
add`` through a temporary file and a rename, so that a daemon that reloads meets the old or the new
file and never half of one. See `amqproute.auth.users`.

Guessing is slow
----------------
Failed log-ins are counted per address (an IPv6 /64 is one address). After ten within a minute
everything by password from there is refused, right or wrong, until the minute is over; see
`amqproute.auth.realm.Throttle`. Whoever shares an address with a guesser waits with them: use
certificates between machines. PLAIN passwords are verified in threads, a bounded number at a time.

Why so
------
Not twisted.cred: its checkers take one credential and give one avatar, while SASL is a
conversation in which the checker speaks; an adapter around it would be longer than what stands
here. Rules are matched on the string forms of principals, not on roles or groups: one list an
operator can read from top to bottom, and `explain` says which line decided.

Limits: no groups, no nested files, no external directory. A wildcard certificate
(``*.beta.example``) proves no name to EXTERNAL.
"""

__all__ = ["policy", "realm", "users"]
