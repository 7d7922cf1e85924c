"""Who agrees to what machines cost: tables of quotes, limits and answers."""

import asyncio
from types import SimpleNamespace

import pytest

from skyward_nb.providers.aws import quoting
from skyward_nb.reports.cost_approval import agree, agreed, hourly_words, quote_lines
from skyward_nb.words.errors import NotAgreed
from skyward_nb.words.offers import Bill, InstanceType, Offer, Price, Quote
from skyward_nb.words.spec import PoolSpec

KIND = InstanceType(
    name="g6.xlarge", arch="x86_64", cpus=4, memory=16, gpu="L4", gpus=1, gpu_memory=22.4
)


def quote(*dollars, nodes=1):
    offers = tuple(
        Offer(
            type=KIND,
            region="us-east-1",
            zones=("us-east-1a",),
            price=None if each is None else Price(dollars=each, source="a test"),
        )
        for each in dollars
    )
    return Quote(nodes=nodes, offers=offers)


class Person:
    """Answers so; None: nobody is there."""

    def __init__(self, answer):
        self.answer = answer
        self.asked = []

    def __call__(self, lines, question):
        self.asked.append((lines, question))
        return self.answer


def spec(**options):
    return PoolSpec(provider="aws", **options)


@pytest.mark.parametrize(
    ("found", "options", "answer", "is_asked", "agreed"),
    [
        (quote(4), {}, None, False, True),
        (quote(5), {}, None, False, True),
        (quote(4, nodes=2), {}, "y", True, True),
        (quote(4, 6), {}, "yes", True, True),
        (quote(4, nodes=2), {}, "n", True, False),
        (quote(4, nodes=2), {}, "", True, False),
        (quote(4, nodes=2), {}, None, True, False),
        (quote(4, nodes=2), {"max_cost": 5.0}, None, True, True),
        (quote(4, nodes=2), {"max_cost": 5.0}, "n", True, False),
        (quote(4, nodes=2), {"confirm_above": 8.0}, None, False, True),
        (quote(4, nodes=2), {"confirm_above": None}, None, False, True),
        (quote(None), {}, "y", True, True),
        (quote(None), {}, None, True, False),
        (quote(None), {"max_cost": 5.0}, None, True, False),
        (quote(1, None), {"max_cost": 5.0}, None, True, False),
        (quote(None), {"confirm_above": None}, None, False, True),
    ],
)
def test_who_is_asked_and_what_follows(found, options, answer, is_asked, agreed):
    person = Person(answer)
    if agreed:
        agree(spec(**options), found, person)
    else:
        with pytest.raises(NotAgreed):
            agree(spec(**options), found, person)
    assert bool(person.asked) == is_asked


def test_a_person_sees_the_table_first():
    person = Person("y")
    agree(spec(nodes=2), quote(4, 5, nodes=2), person)
    ((lines, question),) = person.asked
    assert "2 × g6.xlarge" in lines[2]
    assert "1 × L4 22 GB, 4 cpus, 16 GB" in lines[2]
    assert "$8.00 / h" in lines[2]
    assert question == "Rent that, for $8.00 to $10.00 an hour? [y/N] "


@pytest.mark.parametrize(
    ("before", "now", "asked"),
    [
        (quote(8), quote(8), 1),
        (quote(8), quote(7), 1),
        (quote(8), quote(9), 2),
        (quote(8), quote(None), 2),
        (quote(None), quote(9), 1),
        (quote(4), quote(6), 1),
    ],
)
def test_who_answers_late_agrees_to_what_it_costs_by_then(before, now, asked):
    person, quotes = Person("y"), [before, now, now]
    assert agreed(spec(), lambda: quotes.pop(0), person) is now
    assert len(person.asked) == asked


def test_who_answers_late_may_say_no():
    quotes = [quote(4), quote(6)]
    with pytest.raises(NotAgreed):
        agreed(spec(), lambda: quotes.pop(0), Person(None))


def test_what_was_agreed_to_is_what_is_rented(monkeypatch):
    """For a launch, a quote holds from when it was agreed to; who is asked next hears the price of then."""
    price, clock = iter(range(4, 100)), [0.0]

    async def ask(spec):
        return quote(next(price))

    monkeypatch.setattr(quoting, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(quoting, "_asked", ask)
    for held in ("_quotes", "_agreed"):
        monkeypatch.setattr(quoting, held, {})

    def most(of, **options):
        return asyncio.run(of(spec(**options))).most

    for start in range(3):
        clock[0] = 800.0 * start
        quoting.hold(spec(), asyncio.run(quoting.quote_of(spec())))
    assert most(quoting.quote_of) == most(quoting.launch_quote) == 5
    clock[0] = 2399.0
    assert most(quoting.launch_quote) == 5
    quoting.hold(spec(max_cost=1.0), quote(1))
    assert most(quoting.launch_quote) == 5
    assert most(quoting.launch_quote, max_cost=2.0) == most(quoting.quote_of, max_cost=2.0) == 5


def test_where_nobody_is_there_the_ways_on_are_said():
    with pytest.raises(
        NotAgreed, match=r"\$8.00 an hour, over confirm_above=5.*max_cost=20.*`yes`"
    ):
        agree(spec(nodes=2), quote(4, nodes=2), Person(None))
    with pytest.raises(NotAgreed, match=r"the price is unknown.*`yes`"):
        agree(spec(max_cost=5.0), quote(None), Person(None))


def test_long_tables_are_cut():
    lines = quote_lines(spec(), quote(*(1 + each / 10 for each in range(12))))
    assert "and 4 more, for at most $2.10 an hour" in lines
    assert hourly_words(quote(None)) == "a price that is not known"


# ── bills ───────────────────────────────────────────────────────────────────────────────


def test_a_bill_grows_with_time_and_has_an_end():
    bill = Bill(dollars=3.6, began=1000.0, max_cost=1.8)
    assert bill.spent(900.0) == 0
    assert bill.spent(1000.0 + 1000) == pytest.approx(1.0)
    assert bill.ends() == 1000.0 + 1800
    assert bill.words(1000.0 + 1000) == "$3.60 / h, $1.00 so far"
    assert not bill.warning(1000.0 + 1400)
    assert bill.warning(1000.0 + 1500).startswith(
        "$1.50 of max_cost=1.8 is spent: the machines end"
    )


def test_what_was_spent_before_counts():
    bill = Bill(dollars=3.6, began=1000.0, before=1.0, max_cost=1.8)
    assert bill.spent(1000.0) == 1.0
    assert bill.ends() == pytest.approx(1000.0 + 800)


def test_a_price_that_nobody_knows_has_no_sum():
    bill = Bill(dollars=None, began=0.0, max_cost=5.0)
    assert (bill.spent(1e9), bill.ends(), bill.warning(1e9)) == (None, None, "")
    assert bill.words(1e9) == "price unknown"
