"""The lines that scripts/mcp counts: one for each check, `ok` or `FAILED`."""

import sys
import traceback
from contextlib import contextmanager


@contextmanager
def check(name):
    """Prints the result of the block. A block that raises has failed, and the script continues."""
    try:
        yield
    except Exception as error:
        print(f"  FAILED  {name}: {_reason(error)}", flush=True)
        traceback.print_exception(error, file=sys.stderr)
    else:
        print(f"  ok      {name}", flush=True)


def _reason(error):
    # The transport of the client raises its errors in groups.
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return " ".join(f"{type(error).__name__}: {error}".split())[:500]


def expect(condition, message):
    if not condition:
        raise AssertionError(message)


def expect_equal(actual, expected, what):
    expect(actual == expected, f"{what} is {actual!r}, expected {expected!r}")
