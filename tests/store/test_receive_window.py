"""How much is asked for ahead, on lines of any rate and delay, by a clock of the test's own."""

from __future__ import annotations

from collections import deque

import pytest

from skyward_nb.store.receive_window import ReceiveWindow

WAYS = 4


class Line:
    """A line that carries so many bytes a second, and on which an answer takes so long."""

    def __init__(self, rate: float, delay: float) -> None:
        self.rate = rate
        self.delay = delay
        self.now = 0.0
        self.ahead = ReceiveWindow(lambda: self.now)
        self.most_behind = 0.0
        """The longest that a word would have waited behind what comes."""
        self._free = 0.0
        self._asked = deque()

    def carry(self, size: int) -> float:
        """Have so many bytes come; how long that takes."""
        began, self.most_behind = self.now, 0.0
        while size or self._asked:
            while size and len(self._asked) < WAYS and (asked := self.ahead.ask(size, WAYS)):
                size -= asked.left
                begins = max(self._free, self.now + self.delay)
                self._free = begins + asked.left / self.rate
                self.most_behind = max(self.most_behind, self._free - self.now - self.delay)
                self._asked.append((asked, begins, self._free))
            asked, begins, ends = self._asked.popleft()
            self.now = max(self.now, begins)
            self.ahead.answered(asked)
            self.now = max(self.now, ends)
            self.ahead.has_come(asked, asked.left)
        return self.now - began


@pytest.mark.parametrize("delay", [0.001, 0.06, 0.2])
@pytest.mark.parametrize("rate", [60e3, 250e3, 1e6, 20e6, 300e6])
def test_a_line_is_kept_busy_and_words_wait_little(rate, delay):
    line = Line(rate, delay)
    line.carry(int(2 * rate))  # the first of it tells rate and delay
    took = line.carry(int(10 * rate))
    assert took < 10.5 + delay
    assert line.most_behind < 0.1 + 2 * delay + (16 << 10) / rate


def test_of_a_line_of_which_nothing_is_known_little_is_asked_for():
    line = Line(1e6, 0.03)
    line.carry(100_000)
    assert line.most_behind <= (64 << 10) / 1e6 + 0.1


def test_a_line_that_gets_slower_or_longer():
    line = Line(100e6, 0.002)
    line.carry(200_000_000)
    line.rate = 200e3
    line.carry(20_000_000)
    line.carry(2_000_000)
    assert line.most_behind < 0.2
    line.rate, line.delay = 50e6, 0.15
    line.carry(500_000_000)
    assert line.carry(500_000_000) < 11


def test_small_values_do_not_tell_that_a_line_is_slow():
    line = Line(100e6, 0.06)
    line.carry(500_000_000)
    most = line.ahead.most
    for _ in range(100):
        line.carry(10_000)
    assert line.ahead.most >= 0.9 * most


def test_what_never_comes_hinders_nothing():
    ahead = ReceiveWindow()
    lost = ahead.ask(1 << 20, 1)
    assert ahead.ask(1 << 20, 1) is None, "there is no room"
    ahead.gone(lost)
    short = ahead.ask(1 << 20, 1)
    ahead.shrink(short, 10)
    ahead.has_come(short, 10)
    assert ahead.ask(1 << 20, 1)
