"""What a pool, or some ranks of it, says of other things on the left of `>>`, `@` and `>` than calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from skyward_nb.functions.function import PendingFunction, PendingStream


def _refuses(operator: str) -> Callable[[object, object], object]:
    def refuse(_: object, left: object) -> object:
        if isinstance(left, PendingStream):  # which takes another operator
            return NotImplemented
        raise _no_call(left, operator)

    return refuse


def _no_call(left: object, operator: str) -> TypeError:
    kind = type(left).__name__
    if isinstance(left, list | tuple) and any(isinstance(each, PendingFunction) for each in left):
        advice = "join calls: sky.gather(*calls) >> pool"
    else:
        advice = (
            "if a function returned it, that ran here: decorate the function with @sky.function, "
            "and its call runs on the pool"
        )
    return TypeError(
        f"{operator} sends a call of a sky.function to a pool, and on its left is {kind}; {advice}"
    )


class PoolOperand:
    """What stands on the right of an operator that sends calls."""

    __sky_pool__ = True

    if not TYPE_CHECKING:  # to a type checker these are errors as they stand
        __array_ufunc__ = None  # arrays of NumPy leave the operator to us
        __rrshift__, __rmatmul__, __lt__ = _refuses(">>"), _refuses("@"), _refuses(">")
