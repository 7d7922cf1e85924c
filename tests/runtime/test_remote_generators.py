"""Which generators heed what is sent to them."""

import pytest

from skyward_nb.runtime.remote_generators import heeds_what_is_sent


def plain():
    number = 0
    while number < 3:
        yield number
        number += 1


def several():
    yield 1
    try:
        yield 2
    finally:
        yield 3


def assigns():
    got = yield 1
    print(got)


def passes_on():
    print((yield))


def returns():
    return (yield 1)


def delegates():
    yield from plain()


@pytest.mark.parametrize(
    ("function", "heeds"),
    [(plain, False), (several, False), (assigns, True), (passes_on, True), (returns, True), (delegates, True)],
)  # fmt: skip
def test_generators_that_heed(function, heeds):
    assert heeds_what_is_sent(function.__code__) is heeds
