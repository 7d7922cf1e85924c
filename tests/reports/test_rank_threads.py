"""Threads of ranks under numbers of their own, for front ends that know one process."""

from skyward_nb.reports.rank_threads import RankKey, RankThreads, Standing

FIRST, SECOND = RankKey("a", 0), RankKey("a", 1)


def test_numbers_of_ranks_are_apart_and_lead_back():
    threads = RankThreads()
    numbers = [threads.number(key, 1) for key in (FIRST, SECOND)]
    assert numbers[0] != numbers[1]
    assert numbers == [threads.number(key, 1) for key in (FIRST, SECOND)]
    assert [threads.meant(each) for each in numbers] == [(FIRST, 1), (SECOND, 1)]
    assert min(numbers) >= 1 << 52
    assert max(numbers) < 1 << 53, "a whole number in JavaScript"
    assert threads.meant(1) is None
    assert threads.number(FIRST, 0) == 0, "nothing below it"


def test_answers_have_numbers_of_here():
    threads = RankThreads()
    frames = {"body": {"stackFrames": [{"id": 7, "name": "step", "line": 5}], "totalFrames": 1}}
    (frame,) = threads.renumbered(SECOND, frames)["body"]["stackFrames"]
    assert threads.meant(frame["id"]) == (SECOND, 7)
    assert (frame["name"], frame["line"]) == ("step", 5)
    found = {"body": {"variables": [{"name": "x", "value": "3", "variablesReference": 0}]}}
    assert threads.renumbered(SECOND, found) == found
    scopes = {"body": {"scopes": [{"name": "Locals", "variablesReference": 7}]}}
    (scope,) = threads.renumbered(FIRST, scopes)["body"]["scopes"]
    assert threads.meant(scope["variablesReference"]) == (FIRST, 7)
    breakpoints = {"body": {"breakpoints": [{"id": 3, "verified": True}]}}
    assert threads.renumbered(FIRST, breakpoints) == breakpoints


def test_the_first_that_stands_is_looked_at_until_it_goes():
    threads = RankThreads()
    threads.stands(SECOND, Standing(7, 1, "breakpoint"))
    threads.stands(FIRST, Standing(7, 1, "breakpoint"))
    assert threads.focus == SECOND
    assert threads.in_order() == [SECOND, FIRST]
    assert threads.goes_on(SECOND)
    assert not threads.goes_on(SECOND)
    threads.lets_focus_go()
    assert threads.focus == FIRST
    threads.goes_on(FIRST)
    threads.lets_focus_go()
    assert threads.focus is None
