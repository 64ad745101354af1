# SPDX-License-Identifier: Apache-2.0
"""The state machines of AMQP 1.0, as tables that the code runs on.

**Endpoints.** Connection, session and link have one shape (part 2 §2.4.6, §2.5.5, §2.6.1): each
side opens once and closes once, neither waits for the other. The state is the product of our state
and the peer's; `ENDPOINT` is the table for all three. "Opening" stands for open, begin or attach,
"closing" for close, end or detach.

===============  =====================================  ==================================
state            meaning (local | remote)               names in the standard
===============  =====================================  ==================================
``UNBOUND``      nothing                                HDR_EXCH | UNMAPPED | DETACHED
``OPENING``      opened | nothing                       OPEN_SENT | BEGIN_SENT | ATTACH_SENT
``OFFERED``      nothing | opened                       OPEN_RCVD | BEGIN_RCVD | ATTACH_RCVD
``OPEN``         opened | opened                        OPENED | MAPPED | ATTACHED
``WITHDRAWN``    opened, closed | nothing               OC_PIPE
``LAPSED``       nothing | opened, closed               the peer pipelined its closing
``CLOSING``      opened, closed | opened                CLOSE_SENT and DISCARDING | END_SENT
``LEAVING``      opened | opened, closed                CLOSE_RCVD | END_RCVD
``DONE``         opened, closed | opened, closed        END | UNMAPPED | DETACHED
===============  =====================================  ==================================

==============  ================  ================  ================  ===================
from            SEND_OPENING      RECEIVE_OPENING   SEND_CLOSING      RECEIVE_CLOSING
==============  ================  ================  ================  ===================
``UNBOUND``     OPENING           OFFERED           -                 -
``OPENING``     -                 OPEN              WITHDRAWN         -
``OFFERED``     OPEN              -                 -                 LAPSED
``OPEN``        -                 -                 CLOSING           LEAVING
``WITHDRAWN``   -                 CLOSING           -                 -
``LAPSED``      LEAVING           -                 -                 -
``CLOSING``     -                 -                 -                 DONE
``LEAVING``     -                 -                 DONE              -
``DONE``        -                 -                 -                 -
==============  ================  ================  ================  ===================

A step that the table does not have is a `LocalProtocolError` when we try it and a fault of the
peer's when it arrives. In ``CLOSING`` and ``WITHDRAWN`` everything but the peer's opening and
closing is discarded: it was sent before the peer saw our closing (E-11).

**Phases.** Before the open a connection goes through protocol headers (part 2 §2.2, part 5
§5.1): `PHASES`, from the phase and what happened to the next phase. ``REFUSE`` leads to
``OVER`` from anywhere.

================  =====================  ============================================
phase             what is awaited        goes to
================  =====================  ============================================
``START``         `start`                HEADER
``HEADER``        a protocol header      TLS (TLS header), SASL (SASL), AMQP (AMQP)
``TLS``           `tls_established`      HEADER, on the secured stream
``SASL``          SASL frames            HEADER (outcome ok), VERIFY (a password)
``VERIFY``        `credentials_verified` SASL
``AMQP``          AMQP frames            -
``OVER``          nothing                -
================  =====================  ============================================
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final


class LinkStateName(Enum):
    """State of one endpoint of a connection, session or link."""

    UNBOUND = auto()
    OPENING = auto()
    OFFERED = auto()
    OPEN = auto()
    WITHDRAWN = auto()
    LAPSED = auto()
    CLOSING = auto()
    LEAVING = auto()
    DONE = auto()


OPEN: Final = LinkStateName.OPEN
"""For each transfer: before Python 3.12, looking up a member of an enumeration takes eight times as
long as reading a global name."""


class StateTransition(Enum):
    """A step of an endpoint."""

    SEND_OPENING = auto()
    RECEIVE_OPENING = auto()
    SEND_CLOSING = auto()
    RECEIVE_CLOSING = auto()


ENDPOINT: Final[dict[tuple[LinkStateName, StateTransition], LinkStateName]] = {
    (LinkStateName.UNBOUND, StateTransition.SEND_OPENING): LinkStateName.OPENING,
    (LinkStateName.UNBOUND, StateTransition.RECEIVE_OPENING): LinkStateName.OFFERED,
    (LinkStateName.OPENING, StateTransition.RECEIVE_OPENING): LinkStateName.OPEN,
    (LinkStateName.OPENING, StateTransition.SEND_CLOSING): LinkStateName.WITHDRAWN,
    (LinkStateName.OFFERED, StateTransition.SEND_OPENING): LinkStateName.OPEN,
    (LinkStateName.OFFERED, StateTransition.RECEIVE_CLOSING): LinkStateName.LAPSED,
    (LinkStateName.OPEN, StateTransition.SEND_CLOSING): LinkStateName.CLOSING,
    (LinkStateName.OPEN, StateTransition.RECEIVE_CLOSING): LinkStateName.LEAVING,
    (LinkStateName.WITHDRAWN, StateTransition.RECEIVE_OPENING): LinkStateName.CLOSING,
    (LinkStateName.LAPSED, StateTransition.SEND_OPENING): LinkStateName.LEAVING,
    (LinkStateName.CLOSING, StateTransition.RECEIVE_CLOSING): LinkStateName.DONE,
    (LinkStateName.LEAVING, StateTransition.SEND_CLOSING): LinkStateName.DONE,
}
"""The transitions of all three kinds of endpoint."""

LOCALLY_OPEN: Final = frozenset({LinkStateName.OPENING, LinkStateName.OPEN, LinkStateName.LEAVING})
"""We have opened and not closed: we may send on it, if the peer still listens."""

DISCARDING: Final = frozenset({LinkStateName.WITHDRAWN, LinkStateName.CLOSING})
"""We have closed and the peer has not: its frames are dropped until its closing."""


class HandshakePhase(Enum):
    """Phase of a connection before AMQP frames."""

    START = auto()
    HEADER = auto()
    TLS = auto()
    SASL = auto()
    VERIFY = auto()
    AMQP = auto()
    OVER = auto()


class TransitionTable(Enum):
    """A step from phase to phase."""

    BEGIN = auto()
    TLS_HEADER = auto()
    SASL_HEADER = auto()
    AMQP_HEADER = auto()
    SECURED = auto()
    ASK = auto()
    ANSWERED = auto()
    AUTHENTICATED = auto()
    REFUSE = auto()


PHASES: Final[dict[tuple[HandshakePhase, TransitionTable], HandshakePhase]] = {
    (HandshakePhase.START, TransitionTable.BEGIN): HandshakePhase.HEADER,
    (HandshakePhase.HEADER, TransitionTable.TLS_HEADER): HandshakePhase.TLS,
    (HandshakePhase.HEADER, TransitionTable.SASL_HEADER): HandshakePhase.SASL,
    (HandshakePhase.HEADER, TransitionTable.AMQP_HEADER): HandshakePhase.AMQP,
    (HandshakePhase.TLS, TransitionTable.SECURED): HandshakePhase.HEADER,
    (HandshakePhase.SASL, TransitionTable.ASK): HandshakePhase.VERIFY,
    (HandshakePhase.VERIFY, TransitionTable.ANSWERED): HandshakePhase.SASL,
    (HandshakePhase.SASL, TransitionTable.AUTHENTICATED): HandshakePhase.HEADER,
    **{(phase, TransitionTable.REFUSE): HandshakePhase.OVER for phase in HandshakePhase},
}
"""The transitions of the negotiation."""
