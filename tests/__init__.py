# SPDX-License-Identifier: Apache-2.0
"""The tests, in the layout of the package: `tests.wire` for `amqproute.wire`, and so on.

``python -m tests -j3 tests`` runs them, with all of trial's options (`tests.__main__`), except for
campaigns in their short forms (`tests.campaigns`).

`tests.support` holds the in-memory wire, the fakes and the assertion words. Hypothesis runs
derandomized here, so that a run that passes today passes tomorrow; the long campaigns
(`make test-long`) set ``AMQPROUTE_HYPOTHESIS=long`` for more examples.

Hypothesis tries constants of the sources as examples. Each process would collect them anew, for
five seconds, in the directory that trial makes for it: here all keep what they find in one place,
from run to run.

Deadlines are multiples of one patience (`tests.support.patience`); ``AMQPROUTE_PATIENCE`` sets it
to other seconds than 120.
"""

import os
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis.configuration import set_hypothesis_home_dir

set_hypothesis_home_dir(Path(__file__).parent.parent / ".hypothesis")

settings.register_profile(
    "ordinary",
    derandomize=True,
    deadline=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("long", deadline=None, max_examples=5000)
settings.load_profile(os.environ.get("AMQPROUTE_HYPOTHESIS", "ordinary"))
