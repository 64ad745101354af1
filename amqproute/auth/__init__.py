# SPDX-License-Identifier: Apache-2.0
"""Who are you, and what may you do.

Theory of operation
-------------------
A listener asks its `amqproute.auth.realm.Authenticator` which SASL mechanisms to offer on a
connection, given the facts of its transport: TLS or not, the names out of a verified client
certificate, the user id at the other end of a unix socket. The client picks one; the machine of
`amqproute.wire.sasl_mechanisms` runs; the authenticator turns its credentials into a
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

Guessing is slow, and locks nobody out
--------------------------------------
A right password is answered within two seconds whatever was tried before, from its address or for
its user. A wrong one costs: its answer is held back, twice as long after each failure of its
address (an IPv6 /64 is one) or for its user, and it holds one of the few slots of its address for
up to a second and a half, whether or not the connection stays. So an address fails at most some
three times a second over however many connections; what waits for a slot is bounded, and users who
have logged in from an address before do not wait for others there. PLAIN passwords are looked at in
threads, a few at a time. See `amqproute.auth.log_in_queue`, which decides, and
`amqproute.auth.realm.Verifier`, which acts. Log-ins that had to be turned away unseen end with the
outcome *sys-temp*: nobody is told that a password is wrong that was not looked at.

Each failure is a line of the log, with address, mechanism and user (`refused_log_ins`); beyond a
few they are summed up. A filter for fail2ban that goes by them is in ``etc/fail2ban``.

Why so
------
Not twisted.cred: its checkers take one credential and give one avatar, while SASL is a
conversation in which the checker speaks; an adapter around it would be longer than what stands
here. Rules are matched on the string forms of principals, not on roles or groups: one list an
operator can read from top to bottom, and `explain` says which line decided.

Limits: no groups, no nested files, no external directory. A wildcard certificate
(``*.beta.example``) proves no name to EXTERNAL.
"""

__all__ = ["log_in_queue", "policy", "realm", "refused_log_ins", "users"]
