# SPDX-License-Identifier: Apache-2.0
"""Errors for users, without the traceback through this package.

Spark shows the whole traceback of errors in its Python workers. For a misspelled option or a
missing broker, the last line is enough.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, Final

from amqproute.pipeline.datasource.options import OptionError
from amqproute.pipeline.datasource.place import DataSourceError

__all__ = ["DEBUG", "plain"]

DEBUG: Final = "AMQPROUTE_DEBUG"
"""Environment variable: if set, tracebacks are complete."""

Function = Callable[..., Any]


def plain(function: Function) -> Function:
    """Make a function or generator raise this package's errors without their traceback."""

    @wraps(function)
    def called(*arguments: Any, **named: Any) -> Any:
        try:
            return function(*arguments, **named)
        except (OptionError, DataSourceError) as error:
            raise _bare(error) from None

    @wraps(function)
    def iterated(*arguments: Any, **named: Any) -> Iterator[Any]:
        try:
            yield from function(*arguments, **named)
        except (OptionError, DataSourceError) as error:
            raise _bare(error) from None

    return iterated if inspect.isgeneratorfunction(function) else called


def _bare(error: Exception) -> Exception:
    return error if os.environ.get(DEBUG) else error.with_traceback(None)
