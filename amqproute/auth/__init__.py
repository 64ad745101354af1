# SPDX-License-Identifier: Apache-2.0
"""Authentication of connections, and authorization of what they ask for.

Theory of operation
-------------------
A listener asks its `amqproute.auth.realm.Authenticator` which SASL mechanisms to offer on a
connection, given the facts of its transport: TLS or not, the names out of a verified client
certificate, the user id at the other end of a unix socket. The client picks one; the machine of
`amqproute.wire.sasl_mechanisms` runs; the authenticator turns its credentials into a
`amqproute.values.Principal`:

    certificate and EXTERNAL    -> peer:beta.example     another organization's broker
    unix socket and EXTERNAL    -> uid:1000              a user of this machine
    SCRAM-SHA-256 or PLAIN      -> user:ann              an entry of the users file
    PLAIN                       -> user:ann              a user of a directory, with groups
    OAUTHBEARER or XOAUTH2      -> user:ann              the subject of a token, with groups
    ANONYMOUS                   -> anonymous             unauthenticated

From then on only the principal counts. `amqproute.auth.policy.AccessPolicy` decides whether it may
act on a node, by the ``access`` rules of the configuration: the first match decides, and the
default is to refuse. A rule grants or denies any of seven verbs:

    publish      attach as a sender to a node, or put a message on it
    consume      attach as a receiver and take messages
    browse       attach as a receiver and only read messages
    create       create a node, including a dynamic one
    transfer     hand over a message for this address, as a peer does
    manage       read what `$management` shows (a rule for that name); change the node there
    impersonate  send messages whose user-id is this name instead of the sender's own

A rule names a node by the address used in the attach (``orders``, ``@b.test``, ``amqp$transfer``).
For services and for the null target, the rules are consulted again for the ``to`` of each message.
Thus a user can be given the alias ``@b.test`` without access to the raw service node. Whether a
*peer* may have messages relayed to a third domain is not a rule here; it is the peer's
``relay-for``.

The users file
--------------
YAML, one key per user, with salted SCRAM keys and never a password. ``amqproute user add`` writes
it through a temporary file and a rename, so a daemon that reloads reads either the old or the new
file, never half of one. See `amqproute.auth.users`.

Outside realms
--------------
Users who are not in the file can be known to a directory (`directory_realm`, `ldap_client`), and
users with tokens to an issuer (`issuer_realm`, `issuer_keys`). `outside_realm` is the seam: the
`realm.Verifier` decides which realm it is, gives each a queue of its own, and tells a wrong
password from a realm that cannot tell. Their libraries are optional, so nothing imports
`ldap_client`, `issuer_realm` or `issuer_keys` but the plug-ins of the daemon.

`realm_kinds` is the interface of plug-ins that bring realms of other kinds, and `guarded_realm`
guards against their faults. `log_in_recheck` ends what is open for users who are gone.

Guessing is slow, and nobody can be locked out
----------------------------------------------
A correct password is answered within two seconds, whatever was tried before from the same address
or for the same user. A wrong one has a cost: its answer is delayed, twice as long after each
failure of the address (an IPv6 /64 counts as one address) or for the user, and it occupies one of
the few slots of its address for up to a second and a half, whether or not the connection stays
open. So an address can fail about three times a second at most, over however many connections. The
queue for slots is bounded, and users who have logged in from an address before do not compete with
others there. PLAIN passwords are verified in threads, a few at a time.
`amqproute.auth.log_in_queue` decides; `amqproute.auth.realm.Verifier` acts. Log-ins refused without
verification end with the outcome *sys-temp*: no client learns that its password is wrong unless it
was checked.

Each failure is a log line with address, mechanism and user (`refused_log_ins`); above a limit,
failures are summarized. A fail2ban filter for these lines is in ``etc/fail2ban``.

Why so
------
Not twisted.cred: its checkers take one credential and return one avatar, while SASL is a
conversation in which the checker takes part; an adapter would be longer than this package. Rules
match the string forms of principals and of their groups: an operator can read one list from top to
bottom, and `explain` names the rule that decided.

Limits: users of the file have no groups, and there are no nested files. A wildcard certificate
(``*.beta.example``) proves no name to EXTERNAL.
"""

__all__ = ["log_in_queue", "policy", "realm", "refused_log_ins", "users"]
