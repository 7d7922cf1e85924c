"""What follows from what in a run: failures, interrupts, deaths. No process, no clock."""

import msgspec

from skyward_nb.node.exit_causes import ENDED
from skyward_nb.pool.run_state import CUT_AFTER, SETTLE, RunState
from skyward_nb.protocol.commands import CutCommunication, Gather, Inspect, Interrupt, Kill
from skyward_nb.protocol.events import (
    CommunicationCut,
    Hello,
    NotKilled,
    RankDone,
    RankLost,
    RunInterrupted,
    ShardedResult,
    Stack,
)
from skyward_nb.protocol.message_parts import Failure

HELLO = Hello(pid=1, python="3.11.2")
FAILURE = Failure(type_name="ValueError", message="no", value=None, at=None, traceback=())


def done(rank, *, failed=False, interrupted=False, run=1):
    return RankDone(
        run=run, rank=rank, failure=FAILURE if failed or interrupted else None,
        interrupted=interrupted,
    )  # fmt: skip


def test_all_well():
    run = RunState(1, (0, 1), 2)
    assert run.on_done(done(0), 0) == []
    assert run.running
    assert run.on_done(done(1), 0) == []
    assert not run.running
    assert not run.failed
    assert not run.broken
    assert run.next_due() is None


def test_one_fails_others_get_time_then_an_interrupt_then_are_killed():
    run = RunState(1, (0, 1, 2), 2)
    run.on_done(done(1, failed=True), 10)
    assert run.tick(10.1) == []
    assert run.next_due() == 10 + SETTLE
    assert run.tick(10 + SETTLE) == [Interrupt(1, (0, 2))]
    run.on_interrupted(RunInterrupted(1, ranks=(0, 2)), 10 + SETTLE)
    run.on_done(done(0, interrupted=True), 10.3)
    assert run.next_due() == 10 + SETTLE + CUT_AFTER
    assert run.tick(11) == [CutCommunication(1, (2,)), Inspect((2,))]
    assert run.tick(11) == []
    assert run.tick(11.4) == [], "it has not answered"
    run.on_communication_cut(CommunicationCut(1, 2))
    assert run.tick(11.8) == [CutCommunication(1, (2,))], (
        "it may have come to a collective meanwhile"
    )
    assert run.tick(10 + SETTLE + 2) == [Kill((2,), 1)]
    run.on_lost(RankLost(1, 2, "killed", asked=True), 12.4)
    assert not run.running
    assert run.killed == {2}
    assert [end.rank for end in run.failed] == [1]


def test_who_had_ended_when_it_was_to_be_killed_has_ended_in_time():
    """What it said last may be on its way for as long as a line is slow."""
    run = RunState(1, (0, 1), 2)
    run.interrupt(0)
    run.on_interrupted(RunInterrupted(1, ranks=(0, 1)), 0)
    assert run.tick(2) == [Kill((0, 1), 1)]
    assert run.on_done(done(0, interrupted=True), 2.1) == []
    assert run.on_done(done(1, interrupted=True), 2.1) == []
    assert run.running, "nobody knows yet whether they were killed all the same"
    assert run.on_not_killed(NotKilled(1, (1,)), 2.2) == []
    assert run.on_lost(RankLost(1, 0, "killed", asked=True), 2.3) == []
    assert not run.running
    assert run.killed == {0}
    assert list(run.done) == [1]


def test_who_is_being_killed_is_not_to_be_killed_again():
    """A second order might come when it has said its last word and is not dead yet."""
    run = RunState(1, (0, 1), 2)
    run.interrupt(0)
    run.on_interrupted(RunInterrupted(1, ranks=(1,)), 0)
    assert run.tick(2) == [Kill((1,), 1)]
    run.on_interrupted(RunInterrupted(1, ranks=(0,)), 2.1)
    assert run.tick(4.1) == [Kill((0,), 1)]
    assert run.interrupt(4.2) == []


def test_all_fail_alike_and_none_is_interrupted():
    run = RunState(1, (0, 1), 2)
    run.on_done(done(1, failed=True), 0)
    run.on_done(done(0, failed=True), 0.01)
    assert not run.running
    assert [end.rank for end in run.failed] == [1, 0]


def test_an_interrupt_is_nobodys_failure():
    run = RunState(1, (0, 1), 2)
    assert run.interrupt(5) == [Interrupt(1, (0, 1), by_person=True)]
    run.on_done(done(0, interrupted=True), 5.1)
    run.on_done(done(1, interrupted=True), 5.1)
    assert not run.running
    assert run.failed == []


def test_a_run_that_another_client_had_interrupted_is_told_as_that():
    run = RunState(1, (0, 1, 2), 2)
    run.on_done(done(0, failed=True), 0)
    run.on_interrupted(RunInterrupted(1), 0.1)
    run.on_done(done(1, interrupted=True), 0.2)
    assert [end.rank for end in run.failed] == [0]
    assert run.next_due() == 0.1 + CUT_AFTER, "what the other one began goes on"
    assert run.tick(0.1 + 2) == [Kill((2,), 1)]
    run = RunState(1, (0, 1), 2)
    run.on_interrupted(RunInterrupted(1, by_person=True), 0)
    for rank in (0, 1):
        run.on_done(done(rank, interrupted=True), 0.1)
    assert run.interrupts == 1
    assert not run.failed


def kills(run, now):
    return [each for each in run.tick(now) if isinstance(each, Kill)]


def test_none_is_killed_before_its_machine_says_that_it_was_told():
    """What ranks printed before comes first, over a slow line after many seconds."""
    run = RunState(1, (0, 1), 2)
    run.interrupt(5)
    assert kills(run, 20) == []
    run.on_interrupted(RunInterrupted(1, ranks=(1,)), 20)
    assert kills(run, 21.9) == []
    assert kills(run, 22) == [Kill((1,), 1)]
    run.on_lost(RankLost(1, 1, "killed", asked=True), 22.1)
    assert kills(run, 29) == []
    run.on_interrupted(RunInterrupted(1, ranks=(0,)), 30)
    assert kills(run, 31.9) == []
    assert kills(run, 32) == [Kill((0,), 1)]
    run.on_lost(RankLost(1, 0, "killed", asked=True), 32.1)
    assert not run.running


def test_a_second_interrupt_kills_at_once():
    run = RunState(1, (0, 1), 2)
    run.interrupt(5)
    run.on_done(done(0, interrupted=True), 5.1)
    assert run.interrupt(5.2) == [Kill((1,), 1)]


def test_a_failure_while_interrupting_is_kept():
    run = RunState(1, (0,), 2)
    run.interrupt(0)
    run.on_done(done(0, failed=True), 0.1)
    assert [end.rank for end in run.failed] == [0]


def test_a_users_own_keyboard_interrupt_is_a_failure():
    run = RunState(1, (0,), 2)
    run.on_done(done(0, interrupted=True), 0)
    assert [end.rank for end in run.failed] == [0]


def test_a_death_stops_the_others_and_breaks_the_generation():
    run = RunState(1, (0, 1), 2)
    run.on_lost(RankLost(1, 0, "killed by SIGKILL"), 3)
    assert run.broken
    assert run.tick(3 + SETTLE) == [Interrupt(1, (1,))]


def test_a_death_of_a_rank_outside_the_run_breaks_the_generation_too():
    run = RunState(1, (1,), 2)
    run.on_lost(RankLost(1, 0, "killed"), 0)
    assert run.running
    assert run.tick(SETTLE) == [Interrupt(1, (1,))]


def test_a_users_own_keyboard_interrupt_stops_the_others_and_stays_a_failure():
    run = RunState(1, (0, 1), 2)
    run.on_done(done(0, interrupted=True), 0)
    assert run.tick(SETTLE) == [Interrupt(1, (1,))]
    run.on_done(done(1, interrupted=True), SETTLE)
    assert [end.rank for end in run.failed] == [0]


def test_words_of_another_run_are_not_heard():
    run = RunState(2, (0,), 2)
    run.on_done(done(0, run=1), 0)
    assert run.running


def spread(rank, *parts, run=1):
    return ShardedResult(run, rank, parts)


def test_what_is_spread_is_gathered_when_all_have_said_the_same():
    run = RunState(1, (0, 1), 2.0)
    assert run.on_sharded_result(spread(0, "DTensor 6")) == []
    assert run.on_sharded_result(spread(1, "DTensor 6")) == [Gather(1, (0, 1))]


def test_what_differs_is_not_gathered():
    run = RunState(1, (0, 1), 2.0)
    run.on_sharded_result(spread(0, "DTensor 6"))
    (order,) = run.on_sharded_result(spread(1, "DTensor 7"))
    assert order.ranks == (0, 1)
    assert order.why == "ranks have different parts: rank 0 has DTensor 6; rank 1 has DTensor 7"


def test_nothing_is_gathered_with_a_rank_that_has_ended():
    run = RunState(1, (0, 1, 2), 2.0)
    run.on_sharded_result(spread(0, "DTensor 6"))
    (order,) = run.on_done(RankDone(run=1, rank=2), 0.0)
    assert order == Gather(1, (0,), "rank 2 sent home nothing of it")
    (order,) = run.on_sharded_result(spread(1, "DTensor 6"))
    assert order.ranks == (1,)
    assert order.why


def test_a_rank_that_dies_ends_the_waiting():
    run = RunState(1, (0, 1), 2.0)
    run.on_sharded_result(spread(0, "DTensor 6"))
    (order,) = run.on_lost(RankLost(1, 1, "was killed"), 0.0)
    assert order.ranks == (0,) and order.why
    assert run.on_sharded_result(spread(0, "DTensor 6", run=7)) == []


def test_where_one_cuts_its_communication_all_do():
    run = RunState(1, (0, 1, 2), 2, everyone=(0, 1, 2, 3))
    run.on_done(done(2, failed=True), 0)
    run.tick(SETTLE)
    assert run.tick(SETTLE + CUT_AFTER) == [CutCommunication(1, (0, 1)), Inspect((0, 1))]
    assert run.on_communication_cut(CommunicationCut(1, 0, "all_reduce", cut=True)) == [
        CutCommunication(1, (2, 3), also_idle=True)
    ]
    assert run.on_communication_cut(CommunicationCut(1, 1, "all_reduce", cut=True)) == []
    for rank in (0, 1):
        run.on_done(done(rank, failed=True), 1)
    assert run.torn
    assert [end.rank for end in run.failed] == [2], "what a cut raises is our doing"
    assert run.waited_in == {0: "all_reduce", 1: "all_reduce"}


def test_a_rank_that_ends_after_another_was_cut_leaves_its_group_too():
    run = RunState(1, (0, 1, 2), 2)
    run.interrupt(0)
    run.tick(CUT_AFTER)
    assert run.on_communication_cut(CommunicationCut(1, 1, "all_reduce", cut=True)) == []
    assert run.on_communication_cut(CommunicationCut(1, 0)) == []
    assert run.on_done(done(0, interrupted=True), 1) == [CutCommunication(1, (0,), also_idle=True)]
    assert run.on_done(done(1, failed=True), 1) == [], "it was cut"


def test_a_rank_that_is_asked_twice_answers_twice():
    run = RunState(1, (0, 1), 2)
    run.interrupt(0)
    assert run.tick(CUT_AFTER) == [CutCommunication(1, (0, 1)), Inspect((0, 1))]
    run.on_communication_cut(CommunicationCut(1, 0, "all_reduce", cut=True))
    asked = run.on_done(done(1, interrupted=True), 1)
    assert asked == [CutCommunication(1, (1,), also_idle=True)]
    run.on_communication_cut(CommunicationCut(1, 1))
    assert run.cutting == {1}
    run.on_communication_cut(CommunicationCut(1, 1, cut=True))
    assert not run.cutting


def test_that_it_was_cut_a_rank_may_say_after_it_has_ended():
    run = RunState(1, (0, 1), 2)
    run.interrupt(0)
    assert run.tick(CUT_AFTER) == [CutCommunication(1, (0, 1)), Inspect((0, 1))]
    run.on_done(done(0, interrupted=True), 1)
    run.on_done(done(1, failed=True), 1)
    assert not run.running
    assert run.cutting == {0, 1}
    assert not run.torn
    run.on_communication_cut(CommunicationCut(1, 0))
    run.on_communication_cut(CommunicationCut(1, 1, "all_reduce", cut=True))
    assert run.torn
    assert not run.failed, "what a cut raises is our doing"


def test_ranks_out_of_step_need_a_new_group():
    def ended(rank, steps, *, failed):
        return msgspec.structs.replace(done(rank, failed=failed), steps=steps)

    for steps, torn in (
        ({"0": 7}, False),
        ({"0": 8}, True),
        ({"0": 7, "1": 3}, False),
        ({"0": 7, "2": 3}, True),
    ):
        run = RunState(1, (0, 1), 2)
        run.on_done(ended(0, {"0": 7, "2": 4}, failed=True), 0)
        run.on_done(ended(1, steps, failed=False), 0)
        assert run.torn is torn
    run = RunState(1, (0, 1), 2)
    for rank in (0, 1):
        run.on_done(ended(rank, {"0": rank}, failed=False), 0)
    assert not run.torn, "ranks that end well may have met as they liked"


def test_when_its_time_is_over_ranks_are_looked_at_and_stopped():
    run = RunState(1, (0, 1), 2, timeout_due=10)
    assert run.tick(9.9) == []
    assert run.next_due() == 10
    assert run.tick(10) == [Inspect((0, 1))]
    run.on_stack(Stack(0, "here"), 10.1)
    assert run.tick(10.1) == []
    run.on_stack(Stack(1, ""), 10.2)
    assert run.tick(10.2) == [Interrupt(1, (0, 1))]
    assert run.timed_out
    assert run.stacks == {0: "here", 1: ""}


def test_one_that_does_not_tell_where_it_is_is_not_waited_for():
    run = RunState(1, (0,), 2, timeout_due=0)
    run.tick(0)
    assert run.tick(4) == []
    assert run.tick(6) == [Interrupt(1, (0,))]


def test_a_rank_that_is_killed_while_it_is_asked_once_more_was_where_it_said():
    run = RunState(1, (0, 1), 2)
    run.interrupt(0)
    for text in ("here", "there", ""):
        run.on_stack(Stack(1, text), 1)
    assert run.stacks == {1: "there"}


def test_ranks_are_asked_anew_where_they_are_when_a_line_is_open_again():
    run = RunState(1, (0, 1), 2, timeout_due=0)
    assert run.handle(HELLO, 0) == [], "nobody was asked"
    run.tick(0)
    run.on_stack(Stack(0, "here"), 0.1)
    assert run.handle(HELLO, 1) == [Inspect((1,))]
    run.on_stack(Stack(1, "there"), 1.1)
    assert run.tick(1.1) == [Interrupt(1, (0, 1))]
    assert run.handle(HELLO, 2) == []


def test_with_on_error_wait_the_others_go_on():
    run = RunState(1, (0, 1), 2, waits=True)
    run.on_done(done(0, failed=True), 0)
    assert run.next_due() is None
    assert run.tick(60) == []
    run.on_done(done(1), 61)
    assert [end.rank for end in run.failed] == [0]
    assert not run.running


def test_that_a_peer_died_is_told_by_its_death_and_not_by_those_who_missed_it():
    run = RunState(1, (0, 1), 2)
    ended = msgspec.structs.replace(done(1, failed=True), waited_in="all_reduce")
    run.on_done(ended, 0)
    run.on_lost(RankLost(1, 0, "killed"), 0.1)
    assert run.failed == []
    assert list(run.lost) == [0]


def test_where_ranks_were_when_time_was_over_is_kept():
    run = RunState(1, (0, 1), 2, timeout_due=5)
    assert run.tick(5) == [Inspect((0, 1))]
    run.on_stack(Stack(0, "in a collective"), 5.1)
    run.on_stack(Stack(1, ""), 5.2)
    assert run.tick(5.2) == [Interrupt(1, (0, 1))]
    run.on_stack(Stack(0, "raising what the cut raised"), 5.6)
    run.on_stack(Stack(1, "answers after all"), 5.6)
    assert run.stacks == {0: "in a collective", 1: "answers after all"}


def test_the_first_word_on_a_death_says_how():
    run = RunState(1, (0, 1), 2)
    run.on_lost(RankLost(1, 0, "killed by SIGKILL"), 0.0)
    run.on_lost(RankLost(1, 0, ENDED), 0.1)
    assert run.lost[0].how == "killed by SIGKILL"


def test_a_rank_that_the_next_generation_ended_is_no_loss_of_a_run_that_it_had_ended():
    run = RunState(1, (0, 1), 2)
    run.on_lost(RankLost(1, 0, "closed its connection"), 0.0)
    run.on_done(done(1, interrupted=True), 0.3)
    run.on_lost(RankLost(1, 1, "killed by SIGKILL", asked=True), 0.3)
    assert set(run.lost) == {0}


def test_a_rank_that_ends_while_it_is_killed_is_waited_for():
    run = RunState(1, (0, 1), 2)
    run.interrupt(0)
    assert run.interrupt(0.1) == [Kill((0, 1), 1)]
    run.on_done(done(0), 0.2)
    run.on_lost(RankLost(1, 1, "killed by SIGKILL", asked=True), 0.3)
    assert run.running
    run.on_lost(RankLost(1, 0, "killed by SIGKILL", asked=True), 0.4)
    assert not run.running
    assert run.broken


def test_ranks_of_a_training_may_stop_together_while_all_are_there():
    run = RunState(1, (0, 1), 2, patience=1.5)
    assert run.interrupt(5) == [Interrupt(1, (0, 1), by_person=True, patience=1.5)]
    run.on_interrupted(RunInterrupted(1, ranks=(0, 1)), 5)
    assert run.tick(8.4)[1:] == [Inspect((0, 1))]
    assert run.tick(8.5) == [Kill((0, 1), 1)], "patience comes before grace"
    run = RunState(1, (0, 1), 2, patience=1.5)
    run.on_done(done(1, failed=True), 5)
    assert run.tick(5 + SETTLE) == [Interrupt(1, (0,))]  # one of them is away
    some = RunState(1, (0,), 2, everyone=(0, 1), patience=1.5)
    assert some.interrupt(5) == [Interrupt(1, (0,), by_person=True)]


def test_ranks_that_made_other_steps_or_left_a_model_in_its_midst_are_torn():
    for one, other, torn in (
        ({"optimizer_steps": 4}, {"optimizer_steps": 4}, False),
        ({"optimizer_steps": 4}, {"optimizer_steps": 5}, True),
        ({"left_open": True}, {}, True),
    ):
        run = RunState(1, (0, 1), 2)
        run.on_done(msgspec.structs.replace(done(0, interrupted=True), **one), 0)
        run.on_done(msgspec.structs.replace(done(1, interrupted=True), **other), 0)
        assert run.torn is torn
