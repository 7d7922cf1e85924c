"""What is decided of a pool beyond one run: its phase, who hears what, what is put right. No clock."""

import pytest

from skyward_nb.pool.run_state import RunState
from skyward_nb.pool.state import (
    TRANSITIONS,
    Close,
    Deliver,
    Ended,
    PoolPhase,
    PoolState,
    Refuse,
    Remedy,
    Replace,
    Send,
    SigInt,
)
from skyward_nb.protocol.commands import CutCommunication, Inspect, Interrupt
from skyward_nb.protocol.events import CommunicationCut, Output, Phase, RankDone, RankLost
from skyward_nb.protocol.message_parts import Failure
from skyward_nb.words.reclaimed_machine import ReclaimedMachine

FAILURE = Failure(type_name="ValueError", message="no", value=None, at=None, traceback=())


@pytest.fixture
def state():
    """Four ranks that are there, in their first generation."""
    made = PoolState((0, 1, 2, 3))
    made.begins_anew()
    made.generation = 1
    made.has_begun(is_whole=True)
    made.pids = {rank: 100 + rank for rank in made.ranks}
    return made


def begun(state, number, *ranks, grace=2.0, **options):
    run = RunState(
        number, ranks, grace, everyone=state.ranks, generation=state.generation, **options
    )
    state.runs[number] = run
    return run


def done(rank, run=1, **what):
    return RankDone(run=run, rank=rank, **what)


def lost(rank, generation=1):
    return RankLost(generation, rank, "killed by SIGKILL")


def of(kind, actions):
    return [each for each in actions if isinstance(each, kind)]


def test_phases_change_as_the_table_says_and_an_end_is_for_good():
    for before in PoolPhase:
        for after in PoolPhase:
            state = PoolState((0,))
            state.phase = before
            if after in (before, *TRANSITIONS[before]) or before is PoolPhase.ENDED:
                state.becomes(after)
                assert state.phase is (before if before is PoolPhase.ENDED else after)
            else:
                with pytest.raises(AssertionError, match=f"{before.value} -> {after.value}"):
                    state.becomes(after)


def test_a_rank_that_dies_between_runs_is_missed_and_told_of_by_the_next(state):
    assert state.handle(lost(2), 0, 0) == []
    assert state.phase is PoolPhase.BROKEN
    assert list(state.losses) == [2]
    assert 2 not in state.pids
    assert state.remedy(is_lacking=False) is Remedy.LATER
    state.begins_anew()
    assert not state.losses


def test_who_was_of_an_older_generation_is_not_missed(state):
    assert state.handle(lost(2, generation=0), 0, 0) == []
    assert state.is_ready


def test_calls_go_on_side_by_side_and_a_cell_alone(state):
    assert state.has_room((0, 1), is_call=True)
    begun(state, 1, 0, 1, is_call=True)
    assert state.has_room((2, 3), is_call=True)
    assert not state.has_room((1, 2), is_call=True)
    assert not state.has_room((2, 3), is_call=False)
    state.handle(lost(3), 0, 0)
    assert not state.has_room((2,), is_call=True), "ranks are to begin anew first"


def test_an_event_goes_to_its_run_else_to_that_of_its_rank_else_to_all(state):
    begun(state, 1, 0, 1, is_call=True)
    second = begun(state, 2, 2, 3, is_call=True)
    heard = [
        (Output(2, "stdout", "a", 2), [2]),
        (Output(1, "stdout", "printed late, of no run", 0), [1]),
        (Phase("a line is cut"), [1, 2]),
        (Output(3, "stdout", "of one that is no more", 9), [1]),
    ]
    for event, runs in heard:
        assert state.handle(event, 0, 0) == [Deliver(run, event) for run in runs]
    second.is_in_front = True
    assert state.handle(heard[-1][0], 0, 0) == [Deliver(2, heard[-1][0])]


def test_a_death_elsewhere_does_not_end_a_call_and_is_put_right_when_all_are_over(state):
    first = begun(state, 1, 0, 1, is_call=True)
    begun(state, 2, 2, 3, is_call=True)
    actions = state.handle(lost(2), 0, 0)
    assert not of(Send, actions)
    assert not first.lost
    assert not of(Send, state.handle(done(0), 0.1, 0.1))
    assert of(Ended, state.handle(done(1), 0.1, 0.1)) == [Ended(1)]
    assert not state.is_last(1)
    state.is_over(1)
    del state.runs[1]
    assert of(Send, state.handle(None, 1.0, 1.0)) == [Send(Interrupt(2, (3,)))]
    assert of(Ended, state.handle(done(3, 2, failure=FAILURE, interrupted=True), 1.1, 1.1))
    assert state.is_last(2)
    state.is_over(2)
    assert state.lost_beside() == {2}
    assert state.remedy(is_lacking=False) is Remedy.BEGIN_ANEW


def test_of_two_runs_that_end_together_the_second_one_heard_is_the_last(state):
    for run, rank in ((1, 0), (2, 1)):
        begun(state, run, rank, is_call=True)
        state.handle(done(rank, run), 0, 0)
    assert not state.is_last(1)
    state.is_over(1)
    assert state.is_last(2)


def test_the_person_interrupts_the_run_in_front_and_a_thread_whichever_it_means(state):
    begun(state, 1, 0, 1, is_call=True).is_in_front = True
    begun(state, 2, 2, 3, is_call=True)
    assert state.is_interrupted_first(SigInt())
    assert of(Send, state.handle(SigInt(), 0, 0)) == [Send(Interrupt(1, (0, 1), by_person=True))]
    assert not state.is_interrupted_first(SigInt())
    state.interrupt(2)
    assert state.is_interrupted_first(None)
    actions = state.handle(None, 0, 0)
    assert of(Send, actions) == [Send(Interrupt(2, (2, 3), by_person=True))]
    assert of(Deliver, actions) == [Deliver(2, Phase("interrupted, waiting for ranks 2-3 to stop"))]


def test_no_time_passes_for_ranks_while_something_that_they_said_waits_to_be_heard(state):
    run = begun(state, 1, 0, 1, timeout_due=5.0)
    assert state.next_due() == 5.0
    assert state.handle(done(0), 9.0, None) == [Deliver(1, done(0))]
    assert not run.timed_out
    assert of(Ended, state.handle(done(1), 9.0, None)) == [Ended(1)]
    late = begun(state, 2, 0, 1, timeout_due=5.0)
    assert of(Send, state.handle(None, 9.0, 9.0)) == [Send(Inspect((0, 1)))]
    assert late.timed_out


def test_a_group_that_was_cut_is_formed_again_once_all_have_answered(state):
    run = begun(state, 1, 0, 1, 2, 3)
    for rank in (0, 1):
        state.handle(done(rank), 0, 0)
    run.interrupt(0.0)
    assert Send(CutCommunication(1, (2, 3))) in state.handle(None, 1.0, 1.0)
    assert Send(CutCommunication(1, (0, 1), also_idle=True)) in state.handle(
        CommunicationCut(1, 2, "all_reduce", cut=True), 1.0, 1.0
    )
    for rank in (2, 3):
        state.handle(done(rank, failure=FAILURE, interrupted=True), 1.1, 1.1)
    state.is_over(1)
    del state.runs[1]
    assert state.phase is PoolPhase.BROKEN
    assert state.awaits_cuts
    for rank in (0, 1, 3, 3):  # rank 3 was asked again when it had ended
        assert state.awaits_cuts
        assert not of(Send, state.handle(CommunicationCut(1, rank), 1.2, 1.2))
    assert not state.awaits_cuts
    assert state.remedy(is_lacking=False) is Remedy.REFORM


def test_who_does_not_answer_may_cut_at_any_time_so_ranks_begin_anew(state):
    run = begun(state, 1, 0, 1)
    run.cutting = {1}
    for rank in (0, 1):
        state.handle(done(rank), 0, 0)
    state.is_over(1)
    assert state.remedy(is_lacking=False) is Remedy.BEGIN_ANEW


def test_machines_that_are_to_be_replaced_first_leave_all_else_to_the_next_run(state):
    run = begun(state, 1, 0, 1)
    run.cutting = {1}
    state.is_over(1)
    assert state.remedy(is_lacking=True) is Remedy.LATER
    assert state.is_unsettled


def test_of_a_run_that_is_followed_what_was_lost_with_a_machine_is_lost_in_any_generation(state):
    run = RunState(1, (0, 1, 2), 2.0, generation=0)
    state.machine_ended(ReclaimedMachine((1,), "b", (2,), ""), over="")
    state.losses = {1: lost(1), 2: lost(2)}
    assert state.losses_of(run) == [lost(2, generation=0)]


# ── machines ────────────────────────────────────────────────────────────────────────────

SPOT = ReclaimedMachine((1,), "i-2", (2, 3), "taken back at 10:00")
ENDED = ReclaimedMachine((1,), "i-2", (2, 3), "it was taken back")


def test_a_machine_that_has_ended_takes_its_ranks_along_and_the_next_run_replaces_it(state):
    how = "ended with i-2 (it was taken back)"
    assert state.machine_ended(ENDED, over="") == {rank: RankLost(1, rank, how) for rank in (2, 3)}
    assert state.ended_ranks == {2, 3}
    assert state.before_run([], is_work=True) is Remedy.BEGIN_ANEW
    assert state.before_generation([], over="") == Replace((ENDED,))
    state.has_replaced((1,))
    assert state.before_run([], is_work=True) is Remedy.NOTHING
    assert state.before_generation([], over="") is None


def test_an_end_without_a_reason_is_told_as_that(state):
    (one,) = state.machine_ended(ReclaimedMachine((0,), "i-1", (0,), ""), over="").values()
    assert one.how == "ended with i-1 (its machine has ended)"


def test_a_machine_that_is_about_to_end_is_replaced_for_work_and_answers_questions(state):
    assert state.before_run([SPOT], is_work=False) is Remedy.NOTHING
    assert state.before_run([SPOT], is_work=True) is Remedy.BEGIN_ANEW
    assert state.before_generation([SPOT], over="") == Replace((SPOT,))
    state.machine_ended(ENDED, over="")
    assert state.lacking([SPOT]) == [ENDED], "the end itself says more than its notice"


def test_questions_are_refused_while_a_machine_lacks(state):
    state.machine_ended(ENDED, over="")
    assert state.before_run([], is_work=False) == Refuse(
        "is not whole: node 1 (i-2): it was taken back. The next run gets another machine in its "
        "place; what ranks had is lost."
    )


def test_nothing_is_rented_once_time_or_money_is_over(state):
    over = "it has cost $2.00 of max_cost=2"
    assert state.machine_ended(ENDED, over) == Close(
        f"the machine i-2 has ended (it was taken back), and no other is rented: {over}"
    )
    assert not state.ended_ranks
    assert state.before_generation([SPOT], over) == Refuse(
        f"node 1 (i-2): taken back at 10:00 is not replaced: {over}"
    )


def test_a_machine_that_ends_before_ranks_were_ready_ends_the_pool():
    never_ready = PoolState((0, 1, 2, 3))
    assert never_ready.machine_ended(ENDED, over="") == Close(
        "the machine i-2 has ended (it was taken back)"
    )


def test_an_interrupt_that_came_before_a_run_is_in_front_is_taken_by_it_then(state):
    first = begun(state, 1, 0, 1, is_call=True)
    assert not of(Send, state.handle(SigInt(), 0, 0))
    assert state.to_front([first], is_owed=True)
    assert of(Send, state.handle(None, 0, 0)) == [Send(Interrupt(1, (0, 1), by_person=True))]
    assert not state.to_front([first], is_owed=True)


def test_an_interrupt_is_taken_by_all_in_front_and_by_no_later_run(state):
    first, second = (begun(state, run, run * 2 - 2, run * 2 - 1, is_call=True) for run in (1, 2))
    state.to_front([first, second], is_owed=False)
    assert of(Send, state.handle(SigInt(), 0, 0)) == [
        Send(Interrupt(1, (0, 1), by_person=True)),
        Send(Interrupt(2, (2, 3), by_person=True)),
    ]
    third = begun(state, 3, 0, 1, is_call=True)
    assert not state.to_front([third], is_owed=True) and not third.took_interrupt


def test_an_interrupt_of_which_no_rank_has_heard_is_left_by_the_last_run_that_took_it(state):
    first, second = (begun(state, run, run * 2 - 2, run * 2 - 1, is_call=True) for run in (1, 2))
    state.to_front([first, second], is_owed=False)
    state.handle(SigInt(), 0, 0)
    for rank in (0, 1):
        state.handle(done(rank), 0, 0)
    assert not state.leaves_interrupt(first), "the other may hear of it"
    del state.runs[1]
    state.handle(done(2, 2), 0, 0)
    state.handle(done(3, 2), 0, 0)
    assert state.leaves_interrupt(second)
    second.done[2] = done(2, 2, heard=True)
    assert not state.leaves_interrupt(second)


def test_an_interrupt_that_is_owed_no_more_is_taken_by_no_later_run(state):
    assert not of(Send, state.handle(SigInt(), 0, 0))
    assert not state.to_front([begun(state, 1, 0, 1, is_call=True)], is_owed=False)
    assert not of(Send, state.handle(None, 0, 0))
