# SPDX-License-Identifier: Apache-2.0
"""Context shared by all nodes of a broker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from amqproute.broker.commit_batch import Batch
from amqproute.broker.delivery_stages import DeliveryStages
from amqproute.broker.name_table import NameTable
from amqproute.broker.node_limits import MemoryBudget
from amqproute.broker.queue_counters import QueueCounters
from amqproute.broker.sender_quotas import SenderQuotas
from amqproute.broker.topic_state import TopicCounters
from amqproute.interfaces import IJournal, INode, IStore
from amqproute.turn_scheduler import Pause

__all__ = ["NodeContext"]

LOG_NAMESPACE: Final = "amqproute.broker.broker"


@dataclass(frozen=True, slots=True)
class NodeContext:
    """The surroundings of a node.

    Attributes:
        store: the store of durable messages.
        clock: schedules timers and turns of the reactor.
        now_ms: the wall clock, ms since the epoch.
        begin: makes a `Batch`, for what a node does on its own account.
        journal: records the fate of entries.
        pause: called between slices of long work.
        budget: memory that all queues share.
        quotas: who is charged for what entries occupy.
        log: the log of all nodes.
        stages: durations of the stages of messages, of all nodes.
        ended: counters of queues that have been deleted, so that totals never shrink.
        ended_topics: likewise of topics.
        subscriptions: the queues of all durable subscriptions, by their names.
    """

    store: IStore
    clock: IReactorTime
    now_ms: Callable[[], int]
    begin: Callable[[], Batch]
    journal: IJournal
    pause: Pause
    budget: MemoryBudget = field(default_factory=MemoryBudget)
    quotas: SenderQuotas = field(default_factory=SenderQuotas)
    log: Logger = field(init=False, default_factory=partial(Logger, LOG_NAMESPACE))
    stages: DeliveryStages = field(init=False, default_factory=DeliveryStages)
    ended: QueueCounters = field(init=False, default_factory=QueueCounters)
    ended_topics: TopicCounters = field(init=False, default_factory=TopicCounters)
    subscriptions: NameTable[INode] = field(init=False, default_factory=NameTable)
