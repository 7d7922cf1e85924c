"""What follows from what in a run: failures, interrupts, deaths. No process, no clock."""

import msgspec

from skyward_nb.node.deaths import ENDED
from skyward_nb.pool.conductor import CUT_AFTER, SETTLE, Conductor
from skyward_nb.words.commands import Cut, Gather, Inspect, Interrupt, Kill
from skyward_nb.words.events import Failure, RankDone, RankLost, Spread, Stack, Stopping, WasCut

FAILURE = Failure(type_name="ValueError", message="no", value=None, at=None, traceback=())


def done(rank, *, failed=False, interrupted=False, run=1):
    return RankDone(
        run=run, rank=rank, failure=FAILURE if failed or interrupted else None,
        interrupted=interrupted,
    )  # fmt: skip


def test_all_well():
    conductor = Conductor(1, (0, 1), 2)
    assert conductor.finished(done(0), 0) == []
    assert not conductor.over
    assert conductor.finished(done(1), 0) == []
    assert conductor.over
    assert not conductor.failed
    assert not conductor.broken
    assert conductor.next_due() is None


def test_one_fails_others_get_time_then_an_interrupt_then_are_killed():
    conductor = Conductor(1, (0, 1, 2), 2)
    conductor.finished(done(1, failed=True), 10)
    assert conductor.tick(10.1) == []
    assert conductor.next_due() == 10 + SETTLE
    assert conductor.tick(10 + SETTLE) == [Interrupt(1, (0, 2))]
    conductor.stopping(Stopping(1, ranks=(0, 2)), 10 + SETTLE)
    conductor.finished(done(0, interrupted=True), 10.3)
    assert conductor.next_due() == 10 + SETTLE + CUT_AFTER
    assert conductor.tick(11) == [Cut(1, (2,)), Inspect((2,))]
    assert conductor.tick(11) == []
    assert conductor.tick(11.4) == [], "it has not answered"
    conductor.cut(WasCut(1, 2))
    assert conductor.tick(11.8) == [Cut(1, (2,))], "it may have come to a collective meanwhile"
    assert conductor.tick(10 + SETTLE + 2) == [Kill((2,))]
    conductor.died(RankLost(1, 2, "killed", asked=True), 12.4)
    assert conductor.over
    assert conductor.killed == {2}
    assert [end.rank for end in conductor.failed] == [1]


def test_all_fail_alike_and_none_is_interrupted():
    conductor = Conductor(1, (0, 1), 2)
    conductor.finished(done(1, failed=True), 0)
    conductor.finished(done(0, failed=True), 0.01)
    assert conductor.over
    assert [end.rank for end in conductor.failed] == [1, 0]


def test_an_interrupt_is_nobodys_failure():
    conductor = Conductor(1, (0, 1), 2)
    assert conductor.interrupt(5) == [Interrupt(1, (0, 1), by_person=True)]
    conductor.finished(done(0, interrupted=True), 5.1)
    conductor.finished(done(1, interrupted=True), 5.1)
    assert conductor.over
    assert conductor.failed == []


def test_a_run_that_another_client_had_interrupted_is_told_as_that():
    conductor = Conductor(1, (0, 1, 2), 2)
    conductor.finished(done(0, failed=True), 0)
    conductor.stopping(Stopping(1), 0.1)
    conductor.finished(done(1, interrupted=True), 0.2)
    assert [end.rank for end in conductor.failed] == [0]
    assert conductor.next_due() == 0.1 + CUT_AFTER, "what the other one began goes on"
    assert conductor.tick(0.1 + 2) == [Kill((2,))]
    conductor = Conductor(1, (0, 1), 2)
    conductor.stopping(Stopping(1, by_person=True), 0)
    for rank in (0, 1):
        conductor.finished(done(rank, interrupted=True), 0.1)
    assert conductor.interrupts == 1
    assert not conductor.failed


def kills(conductor, now):
    return [each for each in conductor.tick(now) if isinstance(each, Kill)]


def test_none_is_killed_before_its_machine_says_that_it_was_told():
    """What ranks printed before comes first, over a slow line after many seconds."""
    conductor = Conductor(1, (0, 1), 2)
    conductor.interrupt(5)
    assert kills(conductor, 20) == []
    conductor.stopping(Stopping(1, ranks=(1,)), 20)
    assert kills(conductor, 21.9) == []
    assert kills(conductor, 22) == [Kill((1,))]
    conductor.died(RankLost(1, 1, "killed", asked=True), 22.1)
    assert kills(conductor, 29) == []
    conductor.stopping(Stopping(1, ranks=(0,)), 30)
    assert kills(conductor, 31.9) == []
    assert kills(conductor, 32) == [Kill((0,))]
    conductor.died(RankLost(1, 0, "killed", asked=True), 32.1)
    assert conductor.over


def test_a_second_interrupt_kills_at_once():
    conductor = Conductor(1, (0, 1), 2)
    conductor.interrupt(5)
    conductor.finished(done(0, interrupted=True), 5.1)
    assert conductor.interrupt(5.2) == [Kill((1,))]


def test_a_failure_while_interrupting_is_kept():
    conductor = Conductor(1, (0,), 2)
    conductor.interrupt(0)
    conductor.finished(done(0, failed=True), 0.1)
    assert [end.rank for end in conductor.failed] == [0]


def test_a_users_own_keyboard_interrupt_is_a_failure():
    conductor = Conductor(1, (0,), 2)
    conductor.finished(done(0, interrupted=True), 0)
    assert [end.rank for end in conductor.failed] == [0]


def test_a_death_stops_the_others_and_breaks_the_generation():
    conductor = Conductor(1, (0, 1), 2)
    conductor.died(RankLost(1, 0, "killed by SIGKILL"), 3)
    assert conductor.broken
    assert conductor.tick(3 + SETTLE) == [Interrupt(1, (1,))]


def test_a_death_of_a_rank_outside_the_run_breaks_the_generation_too():
    conductor = Conductor(1, (1,), 2)
    conductor.died(RankLost(1, 0, "killed"), 0)
    assert not conductor.over
    assert conductor.tick(SETTLE) == [Interrupt(1, (1,))]


def test_a_users_own_keyboard_interrupt_stops_the_others_and_stays_a_failure():
    conductor = Conductor(1, (0, 1), 2)
    conductor.finished(done(0, interrupted=True), 0)
    assert conductor.tick(SETTLE) == [Interrupt(1, (1,))]
    conductor.finished(done(1, interrupted=True), SETTLE)
    assert [end.rank for end in conductor.failed] == [0]


def test_words_of_another_run_are_not_heard():
    conductor = Conductor(2, (0,), 2)
    conductor.finished(done(0, run=1), 0)
    assert not conductor.over


def spread(rank, *parts, run=1):
    return Spread(run, rank, parts)


def test_what_is_spread_is_gathered_when_all_have_said_the_same():
    conductor = Conductor(1, (0, 1), 2.0)
    assert conductor.spread(spread(0, "DTensor 6")) == []
    assert conductor.spread(spread(1, "DTensor 6")) == [Gather(1, (0, 1))]


def test_what_differs_is_not_gathered():
    conductor = Conductor(1, (0, 1), 2.0)
    conductor.spread(spread(0, "DTensor 6"))
    (order,) = conductor.spread(spread(1, "DTensor 7"))
    assert order.ranks == (0, 1)
    assert order.why == "ranks have different parts: rank 0 has DTensor 6; rank 1 has DTensor 7"


def test_nothing_is_gathered_with_a_rank_that_has_ended():
    conductor = Conductor(1, (0, 1, 2), 2.0)
    conductor.spread(spread(0, "DTensor 6"))
    (order,) = conductor.finished(RankDone(run=1, rank=2), 0.0)
    assert order == Gather(1, (0,), "rank 2 sent home nothing of it")
    (order,) = conductor.spread(spread(1, "DTensor 6"))
    assert order.ranks == (1,)
    assert order.why


def test_a_rank_that_dies_ends_the_waiting():
    conductor = Conductor(1, (0, 1), 2.0)
    conductor.spread(spread(0, "DTensor 6"))
    (order,) = conductor.died(RankLost(1, 1, "was killed"), 0.0)
    assert order.ranks == (0,) and order.why
    assert conductor.spread(spread(0, "DTensor 6", run=7)) == []


def test_where_one_cuts_its_communication_all_do():
    conductor = Conductor(1, (0, 1, 2), 2, everyone=(0, 1, 2, 3))
    conductor.finished(done(2, failed=True), 0)
    conductor.tick(SETTLE)
    assert conductor.tick(SETTLE + CUT_AFTER) == [Cut(1, (0, 1)), Inspect((0, 1))]
    assert conductor.cut(WasCut(1, 0, "all_reduce", cut=True)) == [Cut(1, (2, 3))]
    assert conductor.cut(WasCut(1, 1, "all_reduce", cut=True)) == []
    for rank in (0, 1):
        conductor.finished(done(rank, failed=True), 1)
    assert conductor.torn
    assert [end.rank for end in conductor.failed] == [2], "what a cut raises is our doing"
    assert conductor.waited_in == {0: "all_reduce", 1: "all_reduce"}


def test_that_it_was_cut_a_rank_may_say_after_it_has_ended():
    conductor = Conductor(1, (0, 1), 2)
    conductor.interrupt(0)
    assert conductor.tick(CUT_AFTER) == [Cut(1, (0, 1)), Inspect((0, 1))]
    conductor.finished(done(0, interrupted=True), 1)
    conductor.finished(done(1, failed=True), 1)
    assert conductor.over
    assert conductor.cutting == {0, 1}
    assert not conductor.torn
    conductor.cut(WasCut(1, 0))
    conductor.cut(WasCut(1, 1, "all_reduce", cut=True))
    assert conductor.torn
    assert not conductor.failed, "what a cut raises is our doing"


def test_ranks_out_of_step_need_a_new_group():
    def ended(rank, steps, *, failed):
        return msgspec.structs.replace(done(rank, failed=failed), steps=steps)

    for steps, torn in (
        ({"0": 7}, False),
        ({"0": 8}, True),
        ({"0": 7, "1": 3}, False),
        ({"0": 7, "2": 3}, True),
    ):
        conductor = Conductor(1, (0, 1), 2)
        conductor.finished(ended(0, {"0": 7, "2": 4}, failed=True), 0)
        conductor.finished(ended(1, steps, failed=False), 0)
        assert conductor.torn is torn
    conductor = Conductor(1, (0, 1), 2)
    for rank in (0, 1):
        conductor.finished(ended(rank, {"0": rank}, failed=False), 0)
    assert not conductor.torn, "ranks that end well may have met as they liked"


def test_when_its_time_is_over_ranks_are_looked_at_and_stopped():
    conductor = Conductor(1, (0, 1), 2, timeout_due=10)
    assert conductor.tick(9.9) == []
    assert conductor.next_due() == 10
    assert conductor.tick(10) == [Inspect((0, 1))]
    conductor.told(Stack(0, "here"), 10.1)
    assert conductor.tick(10.1) == []
    conductor.told(Stack(1, ""), 10.2)
    assert conductor.tick(10.2) == [Interrupt(1, (0, 1))]
    assert conductor.timed_out
    assert conductor.stacks == {0: "here", 1: ""}


def test_one_that_does_not_tell_where_it_is_is_not_waited_for():
    conductor = Conductor(1, (0,), 2, timeout_due=0)
    conductor.tick(0)
    assert conductor.tick(1) == []
    assert conductor.tick(2) == [Interrupt(1, (0,))]


def test_with_on_error_wait_the_others_go_on():
    conductor = Conductor(1, (0, 1), 2, waits=True)
    conductor.finished(done(0, failed=True), 0)
    assert conductor.next_due() is None
    assert conductor.tick(60) == []
    conductor.finished(done(1), 61)
    assert [end.rank for end in conductor.failed] == [0]
    assert conductor.over


def test_that_a_peer_died_is_told_by_its_death_and_not_by_those_who_missed_it():
    conductor = Conductor(1, (0, 1), 2)
    ended = msgspec.structs.replace(done(1, failed=True), waited_in="all_reduce")
    conductor.finished(ended, 0)
    conductor.died(RankLost(1, 0, "killed"), 0.1)
    assert conductor.failed == []
    assert list(conductor.lost) == [0]


def test_where_ranks_were_when_time_was_over_is_kept():
    conductor = Conductor(1, (0, 1), 2, timeout_due=5)
    assert conductor.tick(5) == [Inspect((0, 1))]
    conductor.told(Stack(0, "in a collective"), 5.1)
    conductor.told(Stack(1, ""), 5.2)
    assert conductor.tick(5.2) == [Interrupt(1, (0, 1))]
    conductor.told(Stack(0, "raising what the cut raised"), 5.6)
    conductor.told(Stack(1, "answers after all"), 5.6)
    assert conductor.stacks == {0: "in a collective", 1: "answers after all"}


def test_the_first_word_on_a_death_says_how():
    conductor = Conductor(1, (0, 1), 2)
    conductor.died(RankLost(1, 0, "killed by SIGKILL"), 0.0)
    conductor.died(RankLost(1, 0, ENDED), 0.1)
    assert conductor.lost[0].how == "killed by SIGKILL"


def test_a_rank_that_ends_while_it_is_killed_is_waited_for():
    conductor = Conductor(1, (0, 1), 2)
    conductor.interrupt(0)
    assert conductor.interrupt(0.1) == [Kill((0, 1))]
    conductor.finished(done(0), 0.2)
    conductor.died(RankLost(1, 1, "killed by SIGKILL", asked=True), 0.3)
    assert not conductor.over
    conductor.died(RankLost(1, 0, "killed by SIGKILL", asked=True), 0.4)
    assert conductor.over
    assert conductor.broken
