"""When a pool's time or money is over. No clock."""

import pytest

from skyward_nb.pool.limits import Limits
from skyward_nb.words.offers import Bill

HOUR = 3600.0
BILL = Bill(dollars=2.0, began=0.0, max_cost=4.0)


def test_time_begins_when_agents_do():
    assert Limits(60.0, None, None).seconds_left(1_000.0) == 60.0
    assert Limits(60.0, 0.0, None).seconds_left(50.0) == 10.0
    assert Limits(None, 0.0, None).seconds_left(50.0) is None
    assert Limits(60.0, 0.0, None).why_over(59.0) == ""
    assert Limits(60.0, 0.0, None).why_over(60.0) == "its time is over (ttl=60 s)"
    assert Limits(60.0, None, None).why_over(60.0) == ""


@pytest.mark.parametrize(
    ("ttl", "bill", "end", "by_money"),
    [
        (None, BILL, 2 * HOUR, (4.0, 4.0)),
        (HOUR, BILL, HOUR, None),
        (None, None, 12 * HOUR, None),
    ],
    ids=["money", "time", "nothing known"],
)
def test_what_was_found_gone_late_had_ended_by_what_came_first(ttl, bill, end, by_money):
    limits = Limits(ttl, 0.0, bill)
    assert limits.latest_end(12 * HOUR) == end
    assert limits.ended_by_money(end) == by_money


@pytest.mark.parametrize(
    ("bill", "now", "spent", "by_money", "why"),
    [
        (BILL, 1 * HOUR, None, None, ""),
        (BILL, 2 * HOUR - 36, None, (4.0, 3.98), "it has cost $3.98 of max_cost=4"),
        (BILL, 2 * HOUR, (4.0, 4.0), (4.0, 4.0), "it has cost $4.00 of max_cost=4"),
        (Bill(dollars=2.0, began=0.0), 9 * HOUR, None, None, ""),
        (Bill(dollars=None, began=0.0, max_cost=4.0), 9 * HOUR, None, None, ""),
        (None, 9 * HOUR, None, None, ""),
    ],
    ids=["time", "machines end", "spent", "no limit", "no price", "free"],
)
def test_money_is_over_once_it_is_spent_and_machines_end_shortly_before(
    bill, now, spent, by_money, why
):
    limits = Limits(None, 0.0, bill)
    assert limits.overspent(now) == spent
    assert limits.ended_by_money(now) == by_money
    assert limits.why_over(now) == why
