# SPDX-License-Identifier: Apache-2.0
"""Errors that are for the user come without the way that they took through this package.

Spark shows what its Python workers raise with the whole traceback. Of an option that is misspelled,
or a broker that is not there, the last line says everything.
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
"""A variable of the environment: where it says anything, tracebacks are whole."""

Function = Callable[..., Any]


def plain(function: Function) -> Function:
    """Have a function, or a generator, raise the errors of this package as if they began here."""

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
