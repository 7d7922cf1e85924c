"""tqdm's bars, of all flavours, as a rank tells of them."""

import asyncio
import contextlib
import io
import os
import re
import sys
import threading
import warnings
from typing import ClassVar

import pytest
from msgspec.structs import replace
from waiting import until

import skyward_nb as sky
from skyward_nb.picture.page import as_html
from skyward_nb.picture.text import as_text
from skyward_nb.protocol.events import Metric, Progress, RankDone
from skyward_nb.runtime import event_sink, hooks, progress
from skyward_nb.view.folding import fold
from skyward_nb.view.run_view import RankView, RunView

pytest.importorskip("tqdm")

import tqdm.asyncio
import tqdm.auto
import tqdm.contrib
import tqdm.contrib.concurrent
import tqdm.contrib.logging
from tqdm import tqdm as plain
from tqdm import trange

FLAVOURS = ("tqdm.std", "tqdm.auto", "tqdm.autonotebook", "tqdm.notebook", "tqdm.asyncio")
FLAVOURS += ("tqdm.rich", "tqdm.gui", "tqdm.tk", "tqdm.contrib.bells")


def bars(events):
    """The last that was told of each bar, in the order of their beginnings."""
    return list({event.bar: event for event in events if isinstance(event, Progress)}.values())


def ends(events):
    return [(bar.done, bar.total, bar.text, bar.over) for bar in bars(events)]


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_every_flavour_is_a_bar_and_draws_nothing(flavour, told, capsys):
    module = pytest.importorskip(flavour, exc_type=ImportError)
    assert list(module.tqdm("abc", desc="letters")) == ["a", "b", "c"]
    assert list(module.trange(2)) == [0, 1]
    with module.tqdm(total=4, unit="B") as bar:
        bar.update(3)
        bar.set_description("manual")
        bar.reset(total=5)
        bar.update(5)
    assert ends(told) == [(3, 3, "letters", True), (2, 2, "", True), (5, 5, "manual", True)]
    assert bars(told)[-1].unit == "B"
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_every_flavour_may_be_disabled(flavour, told, capsys):
    module = pytest.importorskip(flavour, exc_type=ImportError)
    assert list(module.tqdm("abc", disable=True)) == ["a", "b", "c"]
    with module.tqdm(total=4, disable=True) as bar:
        bar.update(3)
    with pytest.raises(KeyError, match="of the loop"):
        for _ in module.tqdm("abc", disable=True):
            raise KeyError("of the loop")
    assert told == []
    assert capsys.readouterr() == ("", "")


def test_without_a_terminal_is_disabled_where_that_was_asked_for(told):
    list(plain("abc", disable=None))
    assert told == []


def test_a_notebook_bar_builds_no_widget(told):
    import tqdm.notebook

    bar = tqdm.notebook.tqdm(total=2, desc="x", display=False, colour="green")
    assert not hasattr(bar, "container")
    bar.close()
    assert (told[-1].text, told[-1].over) == ("x", True)


def test_words_beside_a_bar(told):
    bar = plain(total=10, postfix={"a": 1}, bar_format="{bar}")
    assert told[0].note == "a=1"
    bar.set_description("one")
    bar.set_postfix(loss=0.12345, kind="\x1b[31mred\x1b[0m\nline")
    bar.close()
    assert (told[-1].text, told[-1].note) == ("one", "kind=red line, loss=0.123")
    bar = plain(total=10)
    bar.set_description_str("as it is")
    bar.set_postfix_str("free \udc80")
    bar.close()
    assert (told[-1].text, told[-1].note) == ("as it is", "free \\udc80")


def test_what_is_said_last_is_told_though_nothing_follows(told):
    bar = plain(total=10)
    for step in range(2_000):
        bar.set_postfix(step=step)
    few = len(told)
    assert few < 100
    until(lambda: told[-1].note == "step=1999")
    assert not told[-1].over
    bar.close()


@pytest.fixture
def nothing_logged(monkeypatch):
    monkeypatch.setattr(progress, "_logged", {})


def test_metrics_beside_a_bar_are_curves(told, nothing_logged):
    bar = plain(total=3)
    for step in range(3):
        bar.set_postfix(loss=1 / (step + 1), acc=f"{step / 2:.3f}", epoch=7, kind="red", n="4")
        bar.update()
    bar.set_postfix({"val loss": 0.5}, refresh=False)
    bar.close()
    found = [(each.step, each.values) for each in told if isinstance(each, Metric)]
    assert found == [
        (0, {"loss": 1.0, "acc": 0.0}),
        (1, {"loss": 0.5, "acc": 0.5}),
        (2, {"loss": 1 / 3, "acc": 1.0}),
        (0, {"val loss": 0.5}),
    ]
    assert [each for each in told if isinstance(each, Progress)][-1].note == "val loss=0.5"


def test_metrics_beside_a_bar_stay_in_the_finished_picture(told, nothing_logged):
    with plain(range(3), desc="fit") as bar:
        for step in bar:
            bar.set_postfix(loss=1 / (step + 1), kind="red")
    ranks = {event.rank: RankView() for event in told}
    ended = RankDone(run=7, rank=min(ranks))
    view = replace(fold(RunView(ranks=ranks), *told, ended), state="finished", ended=1.0)
    for picture in (as_text(view), as_html(view)):
        assert "fit 3/3 · 100%" in picture
        assert "kind=red" in picture
        assert "0.333" in picture
    assert re.search(r"<img alt=\"[^\"]*loss", as_html(view)), "its curve"


def test_what_is_logged_is_no_curve_of_a_bar_beside_it(told, nothing_logged):
    bar = plain(total=3)
    for step in range(3):
        sky.log(loss=1.0, step=step * 10)
        bar.set_postfix(loss=2.0, lr=0.1)
    bar.close()
    found = [each.values for each in told if isinstance(each, Metric)]
    assert found == [{"loss": 1.0}, {"lr": 0.1}] * 3


def test_numbers_of_any_kind(told):
    import numpy

    with plain(total=numpy.int64(5), initial=1) as bar:
        bar.update(numpy.float32(0.5))
        bar.update(numpy.int64(2))
    assert told[-1].done == 3.5
    assert type(told[-1].total) is int
    with plain(total=float("inf")) as bar:
        bar.update(1.5)
    assert (told[-1].done, told[-1].total) == (1.5, None)
    with plain(total=100, unit_scale=0.1) as bar:
        bar.update(50)
    assert (told[-1].done, told[-1].total) == (5.0, 10.0)


def test_a_generator_has_no_total_unless_said(told):
    list(plain(iter("abc")))
    list(plain(iter("abc"), total=4))
    assert [bar.total for bar in bars(told)] == [None, 4]


def test_what_comes_first_counts_from_there(told):
    bar = plain("abc", initial=4, total=7)
    list(bar)
    # Beside these, where it is held up for a tenth of a second, what it has done by then.
    assert (told[0].done, told[-1].done) == (4, 7)
    assert {each.skipped for each in told} == {4}


def test_loops_within_loops(told):
    for _ in trange(2, desc="outer"):
        for _ in trange(3, desc="inner", leave=False):
            pass
    shown = [(bar.text, bar.level, bar.keeping) for bar in bars(told)]
    assert shown == [("outer", 0, True), ("inner", 1, False), ("inner", 1, False)]
    assert all(bar.over for bar in bars(told))


def test_kept_as_tqdm_would_leave_them(told):
    with plain(total=1, leave=None), plain(total=1, leave=None):
        pass
    assert [bar.keeping for bar in bars(told)] == [True, False]


def test_a_loop_left_early_tells_how_far_it_came(told):
    for item in trange(10):
        if item == 4:
            break
    with pytest.raises(ValueError):
        for item in trange(10):
            if item == 6:
                raise ValueError
    assert ends(told) == [(4, 10, "", True), (6, 10, "", True)]


def test_a_bar_that_nobody_closes_ends_when_it_goes(told):
    bar = plain(total=3, desc="left")
    bar.update(2)
    del bar
    assert ends(told) == [(2, 3, "left", True)]


def test_a_bar_left_open_tells_where_it_stands_when_its_run_ends(told):
    bar = plain(total=1000, mininterval=60)
    bar.update(999)
    hooks.settle()
    assert (told[-1].done, told[-1].over) == (999, False)
    event_sink.begin(2)
    try:
        with plain(total=1, desc="next"):
            assert (told[-1].level, told[-1].run) == (0, 2)
        bar.update(1)
        bar.refresh()
        assert (told[-1].done, told[-1].run) == (1000, 2)
    finally:
        event_sink.begin(0)
        bar.close()


def test_a_bar_left_open_is_not_told_again_by_runs_that_leave_it_alone(told):
    bar = plain(total=5, mininterval=60)
    bar.update(2)
    hooks.settle()
    event_sink.begin(2)
    try:
        before = list(told)
        hooks.settle()
        assert told == before
        bar.update(1)
        hooks.settle()
        assert (told[-1].done, told[-1].run) == (3, 2)
    finally:
        event_sink.begin(0)
        bar.close()


def test_a_bar_of_an_earlier_run_that_is_forgotten_is_not_this_runs(told):
    bar = plain(total=3, desc="left")
    event_sink.begin(2)
    try:
        del bar
    finally:
        event_sink.begin(0)
    assert [(event.text, event.run, event.over) for event in told] == [
        ("left", 0, False),
        ("left", 0, True),
    ]


def test_a_delayed_bar_that_is_quick_is_not_shown(told, capsys):
    list(trange(3, delay=60))
    assert told == []
    assert capsys.readouterr() == ("", "")


def test_text_goes_where_it_would(told, capsys):
    for letter in plain("ab"):
        plain.write(letter)
        plain.write(letter, file=sys.stderr)
    assert capsys.readouterr() == ("a\nb\n", "a\nb\n")


def test_a_bar_for_a_file_is_text_in_that_file(told, tmp_path, capsys):
    by_name, by_place = io.StringIO(), io.StringIO()
    list(plain("abc", file=by_name))
    list(plain("abc", None, None, True, by_place))
    assert "3/3" in by_name.getvalue()
    assert "3/3" in by_place.getvalue()
    with open(tmp_path / "log", "w") as file:
        list(plain("abc", file=file))
    assert "3/3" in (tmp_path / "log").read_text()
    with contextlib.redirect_stderr(io.StringIO()) as caught:
        list(plain("abc"))
    assert "3/3" in caught.getvalue()
    assert told == []
    assert capsys.readouterr() == ("", "")


def test_a_bar_for_the_console_by_name_or_through_a_wrapper(told, capsys):
    list(plain("abc", file=sys.stdout))
    list(plain("abc", None, None, True, sys.stderr))
    list(plain("abc", file=tqdm.contrib.DummyTqdmFile(sys.stdout)))
    assert [bar.done for bar in bars(told)] == [3, 3, 3]
    assert capsys.readouterr() == ("", "")


class WithTime(plain):
    """As tqdm's own examples extend it."""

    @property
    def format_dict(self):
        fields = super().format_dict
        return {**fields, "prefix": "mine", "total_time": 1}


class Elsewhere(plain):
    """A bar that is drawn by other means alone."""

    drawn = 0

    def display(self, msg=None, pos=None):
        type(self).drawn += 1


class Sends(tqdm.auto.tqdm):
    """As tqdm's messengers do: drawn, and sent."""

    sent: ClassVar = []

    def display(self, **kwargs):
        super().display(**kwargs)
        self.sent.append(self.format_meter(**self.format_dict))


def test_what_people_make_of_it(told, capsys):
    list(WithTime("abc"))
    list(Elsewhere("abc"))
    list(Sends("abc"))
    assert ends(told) == [(3, 3, "mine", True), (3, 3, "", True), (3, 3, "", True)]
    assert Elsewhere.drawn > 0
    assert "3/3" in Sends.sent[-1]
    assert capsys.readouterr() == ("", "")
    assert isinstance(WithTime("abc"), plain)
    assert issubclass(tqdm.auto.tqdm, plain)


@pytest.mark.parametrize(
    ("name", "chat"), [("telegram", "chat_id"), ("slack", "channel"), ("discord", "channel_id")]
)
def test_messengers_go_on_sending(name, chat, told, capsys, monkeypatch):
    module = pytest.importorskip(f"tqdm.contrib.{name}", exc_type=ImportError)
    sent = []
    monkeypatch.setattr(module, module.__all__[0], lambda *_: Messages(sent))
    list(module.tqdm("abc", token="t", **{chat: "c"}))
    assert "3/3" in sent[-1]
    assert ends(told) == [(3, 3, "", True)]
    assert capsys.readouterr() == ("", "")


class Messages:
    def __init__(self, sent):
        self.write = sent.append


def test_helpers_of_tqdm(told, capsys):
    assert tqdm.contrib.concurrent.thread_map(abs, [-1, 2]) == [1, 2]
    assert list(tqdm.contrib.tenumerate("ab")) == [(0, "a"), (1, "b")]
    assert list(tqdm.contrib.tzip("ab", "cd")) == [("a", "c"), ("b", "d")]
    assert list(tqdm.contrib.tmap(abs, [-1, 2])) == [1, 2]
    with plain.wrapattr(io.BytesIO(b"abc"), "read", total=3) as file:
        file.read()
    with tqdm.contrib.logging.tqdm_logging_redirect(total=1) as bar:
        bar.update(1)
    assert [(bar.done, bar.total) for bar in bars(told)] == [(2, 2)] * 4 + [(3, 3), (1, 1)]
    assert [bar.unit for bar in bars(told)][-2:] == ["B", "it"]
    assert capsys.readouterr() == ("", "")


def test_awaited_loops(told, capsys):
    async def letters():
        for letter in "abc":
            yield letter

    async def main():
        found = [letter async for letter in tqdm.asyncio.tqdm(letters(), total=3)]
        waited = await tqdm.asyncio.tqdm.gather(*(asyncio.sleep(0, n) for n in range(4)))
        return found, waited

    assert asyncio.run(main()) == (["a", "b", "c"], [0, 1, 2, 3])
    assert [bar.done for bar in bars(told)] == [3, 4]
    assert capsys.readouterr() == ("", "")


def test_pandas(told, capsys):
    pandas = pytest.importorskip("pandas")
    plain.pandas(desc="rows")
    assert list(pandas.Series([1, 2, 3]).progress_apply(lambda x: x + 1)) == [2, 3, 4]
    assert ends(told) == [(3, 3, "rows", True)]
    assert capsys.readouterr() == ("", "")


def in_a_child(write_to):
    """A loop in a forked child, its text on a pipe."""
    sys.stderr = os.fdopen(write_to, "w")
    list(plain("abc", desc="child"))
    sys.stderr.flush()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_forked_child_has_bars_of_text(told):
    bar = plain(total=2)
    bar.update(1)
    count = len(told)
    read_from, write_to = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # tqdm has a thread of its own
        child = os.fork()
    if not child:
        try:
            in_a_child(write_to)
            bar.close()
        finally:
            os._exit(0 if len(told) == count else 1)
    os.close(write_to)
    with os.fdopen(read_from) as pipe:
        text = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    assert "child: 100%" in text
    assert "3/3" in text
    bar.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_map_over_processes(told):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forks beside tqdm's thread
        found = tqdm.contrib.concurrent.process_map(abs, [-1, 2, -3], max_workers=2)
    assert found == [1, 2, 3]
    assert ends(told) == [(3, 3, "", True)]


def test_bars_of_threads(told):
    def work(number):
        for _ in trange(50, desc=f"thread {number}"):
            pass

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ends(told)) == [(50, 50, f"thread {n}", True) for n in range(4)]


def test_an_error_of_ours_is_not_the_users(told, monkeypatch):
    def broken(event):
        raise OSError("the wire is cut")

    monkeypatch.setattr(hooks, "_told", set())
    event_sink.connect(broken)
    with pytest.warns(RuntimeWarning, match="its progress may not be shown.* the wire is cut"):
        assert list(plain("abc")) == ["a", "b", "c"]


def test_as_ever_without_a_pool(capsys):
    event_sink.connect(None)
    with hooks.installed():
        list(plain("abc", desc="plain"))
    out, err = capsys.readouterr()
    assert out == ""
    assert "plain: 100%" in err
    assert "3/3" in err
