"""The view: folded from events, bounded, and what a terminal would show."""

from functools import reduce
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from skyward_nb.protocol.events import (
    Clear,
    Display,
    Metric,
    Metrics,
    Output,
    Phase,
    Progress,
    RankDone,
    RankLost,
    RankPhase,
    RankReady,
    Step,
    Telemetry,
)
from skyward_nb.protocol.message_parts import Gpu
from skyward_nb.view import output_entries as board_module
from skyward_nb.view.folding import fold, trimmed
from skyward_nb.view.run_view import DisplayedObject, OutputLine, RankView, RunView, open_lines


def folded(*events, **fields):
    """Folded one by one, as when a drawing lies between any two of them."""
    return reduce(fold, events, RunView(**fields))


def out(rank, text, stream="stdout"):
    return Output(rank, stream, text)


def lines(view):
    return [(entry.ranks, entry.text) for entry in view.entries if isinstance(entry, OutputLine)]


# ── lines of several ranks ──────────────────────────────────────────────────────────────


def test_equal_lines_of_several_ranks_are_one():
    view = folded(*(out(rank, "a\nb\n") for rank in (2, 0, 1)))
    assert lines(view) == [((0, 1, 2), "a"), ((0, 1, 2), "b")]


def test_every_rank_keeps_its_order():
    view = folded(out(0, "a\nb\n"), out(1, "b\na\n"))
    for rank in (0, 1):
        own = [text for ranks, text in lines(view) if rank in ranks]
        assert own == [["a", "b"], ["b", "a"]][rank]


def test_lines_that_come_together_fold_around_those_that_differ():
    view = fold(RunView(), out(0, "I am 0\nsame\n"), out(1, "I am 1\nsame\n"))
    assert lines(view) == [((0,), "I am 0"), ((1,), "I am 1"), ((0, 1), "same")]


def test_what_came_earlier_stays_before_what_came_later():
    view = folded(out(0, "a\nb\n"), out(1, "c\n"))
    assert lines(view) == [((0,), "a"), ((0,), "b"), ((1,), "c")]


def test_a_rank_repeating_itself_is_counted_each_time():
    assert lines(folded(out(0, "x\nx\n"))) == [((0,), "x"), ((0,), "x")]


def test_streams_do_not_mix():
    view = folded(out(0, "x\n"), out(1, "x\n", "stderr"))
    assert [entry.stream for entry in view.entries] == ["stdout", "stderr"]


def test_sixty_four_ranks_fold_into_one_line():
    view = fold(RunView(), *(out(rank, "same\n" * 50) for rank in range(64)))
    assert lines(view) == [(tuple(range(64)), "same")] * 50


# ── lines as a terminal shows them ──────────────────────────────────────────────────────


def test_a_line_in_pieces_is_one_line():
    view = folded(out(0, "ab"), out(0, "c"))
    assert view.entries == ()
    assert open_lines(view) == [OutputLine((0,), "stdout", "abc")]
    assert lines(fold(view, out(0, "d\n"))) == [((0,), "abcd")]


def test_a_bar_in_pieces_stays_short():
    view = folded(*(out(0, f"\r{i}%") for i in range(1000)))
    assert open_lines(view) == [OutputLine((0,), "stdout", "999%")]


def test_lines_are_taken_back_when_the_cursor_goes_up():
    view = folded(out(0, "one\ntwo\n"), out(1, "one\ntwo\n"), out(0, "\x1b[1A\rTWO"))
    assert lines(view) == [((0, 1), "one"), ((1,), "two")]
    assert open_lines(view) == [OutputLine((0,), "stdout", "TWO")]
    view = fold(view, out(0, "\nthree\n"))
    assert lines(view)[-2:] == [((0,), "TWO"), ((0,), "three")]


def test_a_line_left_open_is_ended_with_the_rank():
    view = folded(out(0, "no newline"), RankDone(run=1, rank=0))
    assert lines(view) == [((0,), "no newline")]


def test_what_is_on_the_screen_stands_before_what_is_displayed():
    view = folded(out(0, "before"), Display(0, {"text/plain": "figure"}), out(0, "after\n"))
    assert [getattr(entry, "text", "figure") for entry in view.entries] == [
        "before", "figure", "after",
    ]  # fmt: skip


# ── bounds ──────────────────────────────────────────────────────────────────────────────


def accounted(view):
    return sum(len(ranks) for ranks, _ in lines(view)) + view.cut


@pytest.mark.parametrize("together", [True, False])
def test_a_million_letters_keep_head_and_tail_and_a_count(together):
    events = [out(0, "".join(f"line {i} {j}\n" for j in range(1000))) for i in range(100)]
    view = fold(RunView(), *events) if together else folded(*events)
    kept = lines(view)
    assert accounted(view) == 100_000
    assert sum(len(text) for _, text in kept) < 1.3 * view.most_text
    assert kept[0][1] == "line 0 0"
    assert kept[-1][1] == "line 99 999"
    assert kept[view.gap - 1][1].startswith("line ")
    assert len(kept) > view.gap > 100


def test_every_line_of_many_ranks_is_accounted_for():
    view = RunView(most_text=10_000)
    for turn in range(50):
        view = fold(
            view,
            *(out(rank, f"same {turn}\n" * 3 + f"rank {rank} {turn}\n") for rank in range(64)),
        )
    assert accounted(view) == 50 * 64 * 4
    assert view.entries[-1].text.endswith("49")
    assert view.cut


def test_the_gap_stands_where_lines_were_left_out():
    view = folded(*(out(0, f"{i:04} {'x' * 90}\n") for i in range(300)), most_text=10_000)
    numbers = [int(text[:4]) for _, text in lines(view)]
    assert numbers[: view.gap] == list(range(view.gap))
    assert numbers[view.gap] == view.gap + view.cut
    assert numbers[-1] == 299


def test_ranks_fold_again_after_a_cut():
    many = "".join(f"{i}\n" for i in range(50_000))
    view = folded(*(out(rank, many) for rank in (0, 1)))
    view = fold(view, out(0, "the end\n"), out(1, "the end\n"))
    assert view.entries[-1] == OutputLine((0, 1), "stdout", "the end")
    assert accounted(view) == 100_002


def test_figures_stay_when_lines_around_them_are_left_out():
    view = folded(
        out(0, "x\n" * 2000), Display(0, {"text/plain": "f"}), out(0, "y\n" * 3000), most_text=9000
    )
    assert [
        entry.data["text/plain"] for entry in view.entries if isinstance(entry, DisplayedObject)
    ] == ["f"]
    assert accounted(view) == 5000


def test_a_figure_shown_after_lines_were_left_out_stands_after_those_before_it():
    text = "".join(f"line {i}\n" for i in range(40))
    figures = Display(1, {"text/plain": "x"}), Display(0, {"text/plain": "y"})
    view = folded(out(2, text), *figures, out(2, text), most_text=300)
    view = fold(view, Display(0, {"text/plain": "x"}))
    shown = [entry for entry in view.entries if isinstance(entry, DisplayedObject)]
    assert [entry.data["text/plain"] for entry in shown if 0 in entry.ranks] == ["y", "x"]


def test_a_rank_that_lags_behind_does_not_make_the_head_grow():
    view = fold(RunView(most_text=10_000), out(0, "".join(f"step {i}\n" for i in range(2000))))
    for i in range(200):
        view = fold(view, out(1, f"{'y' * 1000}{i}\nstep {i}\n"))
    assert accounted(view) == 2400
    assert sum(len(text) for _, text in lines(view)) < 1.3 * view.most_text
    first, second = lines(view)[view.gap - 1 : view.gap + 1]
    assert int(first[1].split()[-1][-3:]) < int(second[1].split()[-1][-3:])


def test_rich_output_is_bounded_and_says_so(monkeypatch):
    monkeypatch.setattr(board_module, "MOST_RICH", 100_000)
    view = folded(*(Display(0, {"image/png": f"{i}" + "A" * 20_000}) for i in range(10)))
    kept = [entry.data["image/png"][0] for entry in view.entries if "image/png" in entry.data]
    assert kept[:2] == ["0", "1"]
    assert kept[-1] == "9"
    left = [entry.data["text/plain"] for entry in view.entries if "text/plain" in entry.data]
    assert left[0] == "(left out here: image/png, 20 kB)"
    assert view.rich_size <= 100_000


def test_a_line_of_one_stream_taken_back_leaves_the_other_stream_in_order():
    view = folded(
        out(0, "a\n", "stderr"), out(1, "c\n"), out(0, "b\n"), out(0, "\x1b[1A", "stderr")
    )
    assert lines(fold(view, out(0, "c\n"))) == [((1,), "c"), ((0,), "b"), ((0,), "c")]


_TEXTS = st.lists(
    st.sampled_from(["a\n", "b\n", "c" * 20 + "\n", "d", "\x1b[1A", "\x1b[2A\r", "\r"]),
    min_size=1,
    max_size=6,
).map("".join)
_EVENTS = st.one_of(
    st.builds(Output, st.integers(0, 3), st.sampled_from(["stdout", "stderr"]), _TEXTS),
    st.builds(Output, st.integers(0, 3), st.just("stdout"), _TEXTS),
    st.builds(Clear, st.integers(0, 3), st.booleans()),
    st.builds(
        lambda rank, text, name: Display(rank, {"text/plain": text}, name),
        st.integers(0, 3),
        st.sampled_from(["p", "q"]),
        st.sampled_from([None, "id"]),
    ),
)


def of_rank(view, rank):
    """What a view has of one rank, in order, as that rank alone would have it."""
    return [replace(entry, ranks=(rank,)) for entry in view.entries if rank in entry.ranks]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(_EVENTS, max_size=10), max_size=8), st.sampled_from([10**6, 200]))
def test_whatever_comes_each_rank_is_as_if_alone_and_sizes_are_right(batches, most_text):
    view = RunView(most_text=most_text)
    alone = {rank: RunView(most_text=10**6) for rank in range(4)}
    for batch in batches:
        view = fold(view, *batch)
        for rank in alone:
            alone[rank] = fold(alone[rank], *(event for event in batch if event.rank == rank))
        assert view.text_size == sum(len(text) + 8 for _, text in lines(view))
        assert view.rich_size == sum(e.size for e in view.entries if isinstance(e, DisplayedObject))
        assert 0 <= view.gap <= len(view.entries)
        for rank, cursor in view.cursors.items():
            assert cursor <= len(view.entries)
            assert not any(rank in entry.ranks for entry in view.entries[cursor:])
        if not view.cut:
            assert all(of_rank(view, rank) == of_rank(alone[rank], rank) for rank in alone)


# ── rich output ─────────────────────────────────────────────────────────────────────────


def test_displays_stand_between_lines_and_are_updated_in_place():
    view = folded(
        out(0, "a\n"),
        Display(0, {"text/plain": "1"}, "id"),
        out(0, "b\n"),
        Display(0, {"text/plain": "2"}, "id", update=True),
        Display(1, {"text/plain": "other"}, "id", update=True),
    )
    assert [type(entry) for entry in view.entries] == [OutputLine, DisplayedObject, OutputLine]
    assert view.entries[1].data == {"text/plain": "2"}


def test_updates_are_of_what_was_displayed_before_them():
    view = fold(
        RunView(),
        Display(0, {"text/plain": "1"}, "id"),
        Display(0, {"text/plain": "2"}, "id", update=True),
        Display(0, {"text/plain": "3"}, "id", update=True),
        Display(0, {"text/plain": "4"}, "id"),
        Display(1, {"text/plain": "of nothing"}, "id", update=True),
    )
    assert [entry.data["text/plain"] for entry in view.entries] == ["3", "4"]
    assert view.rich_size == 2


def test_equal_displays_of_several_ranks_are_one():
    shown = {"text/html": "<b>x</b>"}
    events = [e for rank in range(3) for e in (Display(rank, shown), out(rank, "after\n"))]
    view = folded(*events)
    assert [entry.ranks for entry in view.entries] == [(0, 1, 2), (0, 1, 2)]
    view = folded(*events, Clear(1), out(1, "new\n"))
    assert [entry.ranks for entry in view.entries] == [(0, 2), (0, 2), (1,)]


def test_lines_fold_around_displays_that_differ():
    view = fold(
        RunView(),
        *(
            event
            for rank in (0, 1, 2)
            for event in (
                out(rank, "before\n"),
                Display(rank, {"text/plain": f"figure {rank}"}),
                out(rank, "after\n"),
                RankDone(run=1, rank=rank),
            )
        ),
    )
    assert [getattr(entry, "text", entry.ranks) for entry in view.entries] == [
        "before", (0,), (1,), (2,), "after",
    ]  # fmt: skip


def test_clear_output_is_of_one_rank():
    view = folded(out(0, "a\n"), out(1, "a\nb\n"), Clear(0), out(0, "c\n"))
    assert lines(view) == [((1,), "a"), ((1,), "b"), ((0,), "c")]


def test_clear_output_may_wait():
    view = folded(out(0, "a\n"), Clear(0, wait=True))
    assert lines(view) == [((0,), "a")]
    assert lines(fold(view, out(0, "b\n"))) == [((0,), "b")]


def test_an_animation_by_clear_output_leaves_its_last_picture():
    view = RunView()
    for turn in range(5):
        view = fold(
            view, Clear(0, wait=True), out(0, f"{turn}\n"), Display(0, {"text/plain": f"{turn}"})
        )
    assert lines(view) == [((0,), "4")]
    assert [entry.data for entry in view.entries if isinstance(entry, DisplayedObject)] == [
        {"text/plain": "4"}
    ]
    assert view.text_size == len("4") + 8


# ── loops, metrics, figures of ranks ────────────────────────────────────────────────────


def bar(number, done, total=10, level=0, text="", **fields):
    return Progress(0, number, done, total, text, 1.0, level, **fields)


def bars(*events):
    return [(b.text, b.level, b.done) for b in folded(*events).ranks[0].bars]


def test_a_bar_is_renewed_in_place():
    assert bars(bar(1, 3), bar(1, 5)) == [("", 0, 5)]


def test_a_loop_within_stands_below_and_takes_the_place_of_its_turn_before():
    events = [bar(1, 0, text="epoch")]
    for turn in (1, 2):
        events += [bar(turn * 10, 10, level=1, text="step", over=True), bar(1, turn, text="epoch")]
    assert bars(*events) == [("epoch", 0, 2), ("step", 1, 10)]
    over = bar(1, 2, text="epoch", over=True)
    assert bars(*events, over) == [("epoch", 0, 2), ("step", 1, 10)]
    assert bars(*events, over, bar(30, 0, text="epoch")) == [("epoch", 0, 0)]


def test_loops_one_after_another_are_all_kept_when_they_differ():
    assert bars(bar(1, 10, text="train", over=True), bar(2, 4, text="test")) == [
        ("train", 0, 10),
        ("test", 0, 4),
    ]
    assert bars(bar(1, 10, over=True), bar(2, 4)) == [("", 0, 4)]


def test_a_bar_that_leaves_nothing_is_gone():
    assert bars(bar(1, 3), bar(1, 10, over=True, keeping=False)) == []
    inner = bar(2, 10, over=True, keeping=False, level=1)
    assert bars(bar(1, 3), inner, bar(1, 10, over=True, keeping=False)) == []


def test_an_inner_bar_that_leaves_nothing_stays_in_its_row_until_another_one_takes_it():
    train, going = (bar(2, at, text="train", keeping=False, level=1) for at in (10, 5))
    train = replace(train, over=True)
    done = folded(bar(1, 0, text="epoch"), going, train, bar(1, 10, text="epoch", over=True))
    assert [each.text for each in done.ranks[0].bars] == ["epoch", "train"]
    assert done.ranks[0].loop_rows == 2, "no row is blank"
    check = bar(3, 1, text="check", keeping=False, level=1)
    after = folded(bar(1, 0, text="epoch"), train, check)
    assert [each.text for each in after.ranks[0].bars] == ["epoch", "check"]
    assert after.ranks[0].loop_rows == 2


def test_bars_are_bounded():
    assert len(bars(*(bar(i, 1, text=f"{i}") for i in range(100)))) <= 8


def test_ranks_have_metrics_with_series_and_an_end():
    view = folded(
        Metric(1, 4, {"loss": 0.5}), Metric(1, 5, {"acc": 0.9, "loss": 0.25}),
        RankDone(run=1, rank=1), RankLost(1, 2, "killed"), now=3.0,
    )  # fmt: skip
    rank = view.ranks[1]
    assert rank.metrics == {"loss": 0.25, "acc": 0.9}
    assert rank.series["loss"].steps == (4, 5)
    assert (rank.state, rank.ended, view.ranks[2].state) == ("done", 3.0, "lost")


def test_a_hundred_thousand_metrics_are_one_short_series():
    view = fold(RunView(), *(Metric(0, step, {"loss": 1.0}) for step in range(100_000)))
    assert len(view.ranks[0].series["loss"].steps) <= 400
    assert sum(view.ranks[0].series["loss"].counts) == 100_000


def test_telemetry_is_the_last_and_the_most():
    gpu = Gpu(used=1, total=2, busy=3, celsius=4)
    samples = Telemetry(0, None, 500), Telemetry(0, 50.0, 300, gpu), Telemetry(1, 50.0, 300)
    view = folded(*samples, ranks={0: RankView()})
    assert view.ranks.keys() == {0}
    assert view.ranks[0].telemetry == Telemetry(0, 50.0, 300, gpu)
    assert view.ranks[0].peak == 500


def test_what_a_rank_is_busy_with_ends_with_it():
    view = folded(RankPhase(0, "returning values"))
    assert view.ranks[0].stage == "returning values"
    assert fold(view, RankDone(run=1, rank=0)).ranks[0].stage == ""


def test_steps_of_nodes_have_times():
    view = folded(Step((0, 1), "agent"), now=1.0)
    view = fold(replace(view, now=3.0), Step((0, 1), "agent", done=True))
    view = fold(view, Step((0, 1), "imports", "torch"), RankReady(1, 0, 7))
    agent, imports = view.steps[(0, 1)]
    assert (agent.began, agent.ended) == (1.0, 3.0)
    assert (imports.text, imports.ended) == ("torch", None)
    assert view.ready == 1


def test_a_phase_is_words():
    assert folded(Phase("packing x")).phase == "packing x"


def test_folding_changes_no_view():
    before = folded(out(0, "a\n"), Metric(0, 1, {"x": 1.0}), bar(1, 1))
    kept = replace(before)
    fold(before, out(1, "a\n"), out(0, "b\n"), Metric(0, 2, {"x": 2.0}), bar(1, 2), Clear(0))
    assert before == kept


def test_what_a_rank_displayed_stays_between_its_lines_when_lines_are_cut():
    for seed in range(300):
        random = Random(seed)
        view = RunView(most_text=random.choice((50, 100, 300)))
        said = {rank: [] for rank in range(4)}
        for _ in range(30):
            events = []
            for _ in range(random.randrange(1, 4)):
                rank = random.randrange(4)
                texts = random.choices(("a", "b", "c"), k=random.randrange(6))
                said[rank] += [*texts, "shown"]
                events.append(out(rank, "".join(f"{text}\n" for text in texts)))
                events.append(Display(rank, {"text/plain": "shown"}))
            view = fold(view, *events)
        for rank, all_said in said.items():
            left = iter(all_said)
            for entry in view.entries:
                if rank in entry.ranks:
                    text = entry.text if isinstance(entry, OutputLine) else "shown"
                    assert text in left, f"{seed}: rank {rank} did not say {text} there"


def test_so_many_displays_are_bounded_in_number_and_counted():
    view = folded(*(Display(0, {"text/plain": str(number)}) for number in range(3000)))
    assert view.shown + view.unshown == 3000
    assert view.shown == sum(isinstance(entry, DisplayedObject) for entry in view.entries)
    assert view.shown <= 1.25 * board_module.MOST_SHOWN
    assert view.entries[0].data == {"text/plain": "0"}
    assert view.entries[-1].data == {"text/plain": "2999"}


def test_in_the_end_there_is_no_more_text_than_asked_for():
    text = "".join(f"ligne {i} · é\n" for i in range(1000))
    view = folded(out(0, text), most_text=10_000)
    end = trimmed(view)
    assert accounted(end) == 1000
    assert sum(len(text.encode()) for _, text in lines(end)) < 10_000
    assert trimmed(end) is end


def test_loops_that_are_not_kept_are_counted():
    view = folded(*(bar(i, 10, text=f"loop {i}", over=True) for i in range(20)))
    assert len(view.ranks[0].bars) + view.ranks[0].bars_done == 20


def test_inner_loops_that_ended_stay_until_another_loop_begins_around_them():
    inner = [bar(i, 10, text=f"epoch {i}", over=True, level=1) for i in range(1, 21)]
    going = folded(bar(0, 5, text="all"), *inner)
    assert len(going.ranks[0].bars) + going.ranks[0].bars_done == 21
    over = fold(going, bar(0, 20, text="all", over=True))
    assert over.ranks[0].bars_done == going.ranks[0].bars_done
    assert over.ranks[0].loop_rows == going.ranks[0].loop_rows
    again = fold(over, bar(21, 0, text="all"))
    assert [each.text for each in again.ranks[0].bars] == ["all"]
    assert again.ranks[0].bars_done == 0
    # One that was left before its end goes with the loop around it.
    left = fold(going, bar(22, 1, text="epoch 21", level=1), bar(0, 20, text="all", over=True))
    assert "epoch 21" not in [each.text for each in left.ranks[0].bars]


def test_many_metrics_in_one_message_are_as_many_messages():
    one = folded(*(Metric(0, step, {"a": step, "b": -step}) for step in range(50)))
    steps = list(range(50))
    many = folded(Metrics(0, steps, {"a": [*steps], "b": [-s for s in steps]}))
    assert one.ranks == many.ranks
    surplus = folded(
        Metrics(0, [*steps, 50], {"a": [*steps], "b": [-s for s in (*steps, 50, 51)][:50]})
    )
    assert surplus.ranks == many.ranks
    assert not folded(Metrics(0, [], {"a": [1.0]})).ranks[0].metrics
