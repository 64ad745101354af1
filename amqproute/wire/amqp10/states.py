# SPDX-License-Identifier: Apache-2.0
"""The state machines of AMQP 1.0, as tables that the code runs on.

**Endpoints.** Connection, session and link have one shape (part 2 §2.4.6, §2.5.5, §2.6.1): each
side opens once and closes once, neither waits for the other. The state is the product of what we
have said and what the peer has said; `ENDPOINT` is the table for all three. "Opening" stands for
open, begin or attach, "closing" for close, end or detach.

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
closing is discarded: it was on its way when ours went out (E-11).

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


class State(Enum):
    """Where one endpoint of a connection, session or link is."""

    UNBOUND = auto()
    OPENING = auto()
    OFFERED = auto()
    OPEN = auto()
    WITHDRAWN = auto()
    LAPSED = auto()
    CLOSING = auto()
    LEAVING = auto()
    DONE = auto()


class Step(Enum):
    """What moves an endpoint."""

    SEND_OPENING = auto()
    RECEIVE_OPENING = auto()
    SEND_CLOSING = auto()
    RECEIVE_CLOSING = auto()


ENDPOINT: Final[dict[tuple[State, Step], State]] = {
    (State.UNBOUND, Step.SEND_OPENING): State.OPENING,
    (State.UNBOUND, Step.RECEIVE_OPENING): State.OFFERED,
    (State.OPENING, Step.RECEIVE_OPENING): State.OPEN,
    (State.OPENING, Step.SEND_CLOSING): State.WITHDRAWN,
    (State.OFFERED, Step.SEND_OPENING): State.OPEN,
    (State.OFFERED, Step.RECEIVE_CLOSING): State.LAPSED,
    (State.OPEN, Step.SEND_CLOSING): State.CLOSING,
    (State.OPEN, Step.RECEIVE_CLOSING): State.LEAVING,
    (State.WITHDRAWN, Step.RECEIVE_OPENING): State.CLOSING,
    (State.LAPSED, Step.SEND_OPENING): State.LEAVING,
    (State.CLOSING, Step.RECEIVE_CLOSING): State.DONE,
    (State.LEAVING, Step.SEND_CLOSING): State.DONE,
}
"""The transitions of all three kinds of endpoint."""

LOCALLY_OPEN: Final = frozenset({State.OPENING, State.OPEN, State.LEAVING})
"""We have opened and not closed: we may send on it, if the peer still listens."""

DISCARDING: Final = frozenset({State.WITHDRAWN, State.CLOSING})
"""We have closed and the peer has not: what it sends is dropped until its closing."""


class Phase(Enum):
    """How far a connection is on its way to AMQP frames."""

    START = auto()
    HEADER = auto()
    TLS = auto()
    SASL = auto()
    VERIFY = auto()
    AMQP = auto()
    OVER = auto()


class Turn(Enum):
    """What moves a connection from phase to phase."""

    BEGIN = auto()
    TLS_HEADER = auto()
    SASL_HEADER = auto()
    AMQP_HEADER = auto()
    SECURED = auto()
    ASK = auto()
    ANSWERED = auto()
    AUTHENTICATED = auto()
    REFUSE = auto()


PHASES: Final[dict[tuple[Phase, Turn], Phase]] = {
    (Phase.START, Turn.BEGIN): Phase.HEADER,
    (Phase.HEADER, Turn.TLS_HEADER): Phase.TLS,
    (Phase.HEADER, Turn.SASL_HEADER): Phase.SASL,
    (Phase.HEADER, Turn.AMQP_HEADER): Phase.AMQP,
    (Phase.TLS, Turn.SECURED): Phase.HEADER,
    (Phase.SASL, Turn.ASK): Phase.VERIFY,
    (Phase.VERIFY, Turn.ANSWERED): Phase.SASL,
    (Phase.SASL, Turn.AUTHENTICATED): Phase.HEADER,
    **{(phase, Turn.REFUSE): Phase.OVER for phase in Phase},
}
"""The transitions of the negotiation."""
