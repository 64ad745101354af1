# SPDX-License-Identifier: Apache-2.0
"""Expiry of staged contents, and their bounds as they are configured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from amqproute.broker.alarm import Alarm
from amqproute.config.schema import Config
from amqproute.daemon.config_reload import Apply
from amqproute.plurals import counted
from amqproute.store.staging import StagingDirectory
from amqproute.store.staging_ledger import StagingTerms

__all__ = ["StagingExpiry", "staging_terms"]

SWEEP_SECONDS: Final = 60.0
"""Seconds between two searches for expired contents; fewer where they are kept for less."""

log = Logger()


def staging_terms(config: Config) -> StagingTerms:
    """Return the bounds of staged contents of a configuration."""
    staging = config.staging
    return StagingTerms(
        staging.max_content,
        staging.max_user_bytes,
        staging.max_bytes,
        staging.max_user_contents,
        staging.max_contents,
        round(staging.keep * 1000),
    )


class StagingExpiry:
    """Periodic removal of contents that nobody has gone on with.

    Args:
        staging: the contents.
        clock: the clock for the timer.
        now_ms: the clock by which they age, which goes on while the daemon does not run.
        config: with the bounds.
    """

    def __init__(
        self,
        staging: StagingDirectory,
        clock: IReactorTime,
        now_ms: Callable[[], int],
        config: Config,
    ) -> None:
        self.staging = staging
        staging.clock_ms = now_ms
        staging.terms = staging_terms(config)
        self._alarm = Alarm(clock)

    def sweep(self) -> None:
        """Remove expired contents now, and again later."""
        number = self.staging.expire()
        if number:
            log.info("{what} expired before it was published", what=counted(number, "content"))
        self._alarm.set(min(SWEEP_SECONDS, self.staging.terms.lifetime_ms / 4000), self.sweep)

    def prepare(self, config: Config) -> Apply:
        """See `config_reload.Prepare`."""
        terms = staging_terms(config)

        def apply() -> None:
            self.staging.terms = terms
            self.sweep()

        return apply

    def stop(self) -> None:
        """Stop the timer."""
        self._alarm.stop()
