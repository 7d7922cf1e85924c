"""Failures of ranks as one exception: the user's own, and who raised what where."""

from __future__ import annotations

import pickle
import traceback

import pytest
from msgspec.structs import replace

import skyward_nb as sky
from skyward_nb.hangs.hang import StalledRun
from skyward_nb.hangs.rank_locations import RankLocation, SourceLocation
from skyward_nb.node.error_interpreter import pack_exception
from skyward_nb.node.exit_causes import ENDED
from skyward_nb.protocol.events import RankDone, RankLost
from skyward_nb.protocol.message_parts import CodeFrame, Failure, Frame, RaisedError
from skyward_nb.reports.rank_failures import (
    brief,
    died,
    exception_of,
    failures_of,
    headline_of,
    how_died,
    timed_out,
)
from skyward_nb.store.blobs import BlobStore
from skyward_nb.words import errors
from skyward_nb.words.bounds import MESSAGE

HERE = Frame("Cell In[3]", 7, "raise ValueError(x)")


@pytest.fixture
def store(tmp_path):
    return BlobStore(tmp_path / "memory", tmp_path / "disk")


def end(rank, error, store, *, at=HERE):
    packed = pack_exception(error, store)
    failure = Failure(
        type_name=type(error).__qualname__, message=str(error)[:MESSAGE], value=packed, at=at,
        traceback=("as it reads",),
    )  # fmt: skip
    return RankDone(run=1, rank=rank, failure=failure)


def test_each_error_can_be_caught_by_its_name():
    found = [
        each
        for each in vars(errors).values()
        if isinstance(each, type) and issubclass(each, errors.SkyError)
    ]
    assert errors.TakenBack in found
    for each in found:
        assert getattr(sky, each.__name__) is each and each.__name__ in sky.__all__


def test_a_headline_is_of_what_failed_first(store):
    other = Frame("Cell In[3]", 8, "x" * 200)
    failed = [
        end(1, ValueError("at 0x1f\nand more"), store),
        end(0, ValueError("at 0x2e\nand more"), store, at=other),
        *(end(2 + n, KeyError(n), store, at=other if n else None) for n in range(5)),
    ]
    headline, notes = headline_of(failures_of(failed), 8)
    assert headline == "ValueError on ranks 0-1 of 8: at 0x1f"
    place, unplaced, placed, _, more = notes
    assert place == "Cell In[3], line 7: raise ValueError(x)"
    assert unplaced == "KeyError on rank 2 of 8: 0"
    assert placed.startswith("KeyError on rank 3 of 8: 1 (Cell In[3], line 8: xxx")
    assert placed.endswith("x…)")
    assert more == "2 more, each told below"


def test_a_message_that_is_cut_in_the_headline_stands_whole_below_it(store):
    advice = (
        "input() on rank 0, which has no keyboard: " + "ask in a cell " * 20 + "to which it is sent"
    )
    headline, notes = headline_of(failures_of([end(0, EOFError(advice), store)]), 2)
    assert headline.startswith("EOFError on rank 0 of 2: input() on rank 0, which has no")
    assert headline.endswith("…")
    assert notes == (advice, "Cell In[3], line 7: raise ValueError(x)")
    _, notes = headline_of(failures_of([end(0, EOFError(f"{advice}\nand more"), store)]), 2)
    assert notes[:2] == (advice, "and more")
    _, notes = headline_of(failures_of([end(0, EOFError("still loading…"), store)]), 2)
    assert notes == ("Cell In[3], line 7: raise ValueError(x)",), "nothing is cut"


def test_a_headline_puts_ranks_together_whose_messages_begin_alike(store):
    failed = [
        end(rank, ValueError(f"it failed in: x\npeer {rank} closed"), store) for rank in (0, 1)
    ]
    headline, _ = headline_of(failures_of(failed), 2)
    assert headline == "ValueError on ranks 0-1 of 2: it failed in: x"
    assert brief(failures_of(failed), 2) == "ValueError on ranks 0-1 of 2, Cell In[3], line 7"


def test_without_messages_it_is_said_what_failed_on_whom(store):
    kinds = [ValueError, KeyError, TypeError, OSError, IndexError, ValueError]
    places = [Frame("Cell In[3]", rank, "") for rank in range(6)]
    failed = [end(r, kinds[r]("long"), store, at=places[r]) for r in range(6)]
    words = "ValueError on ranks 0,5 of 6; KeyError on rank 1 of 6; TypeError on rank 2 of 6"
    assert brief(failures_of(failed), 6) == f"{words}; 2 more"


def test_equal_failures_are_one_and_the_first_in_time_is_first(store):
    failed = [
        end(3, ValueError("a"), store),
        end(0, KeyError("b"), store),
        end(1, ValueError("a"), store),
        end(2, ValueError("a"), store, at=None),
    ]
    assert failures_of(failed) == (
        sky.RankFailure((1, 3), "ValueError", "a", "Cell In[3]", 7, "raise ValueError(x)", first=3),
        sky.RankFailure((0,), "KeyError", "'b'", "Cell In[3]", 7, "raise ValueError(x)", first=0),
        sky.RankFailure((2,), "ValueError", "a", "", 0, "", first=2),
    )
    error = exception_of(failed, 4, store, ("ranks 4-5 were stopped",))
    assert type(error) is ValueError
    assert error.failures == failures_of(failed)
    assert error.__notes__ == [
        "raised on ranks 1,3 of 4, Cell In[3], line 7: raise ValueError(x)",
        "KeyError: 'b' on rank 0 of 4, Cell In[3], line 7: raise ValueError(x)",
        "ValueError: a on rank 2 of 4",
        "ranks 4-5 were stopped",
    ]
    assert error._render_traceback_() == ["as it reads", *error.__notes__]


def test_of_a_great_many_different_failures_some_have_notes(store):
    error = exception_of([end(rank, ValueError(rank), store) for rank in range(100)], 100, store)
    assert len(error.failures) == 100
    assert error.__notes__[-1] == "84 more failures: `error.failures` lists all"
    assert len(error.__notes__) == 17


class Long(Exception):
    def __str__(self):
        return "long" * 100_000


class Broken(Exception):
    def __str__(self):
        raise RuntimeError


class OfTwo(Exception):
    """It pickles itself, and cannot be rebuilt so."""

    def __init__(self, a, b):
        super().__init__("m")
        self.a = a


class OwnGroup(ExceptionGroup):
    def __new__(cls, members, code):
        made = super().__new__(cls, "own", members)
        made.code = code
        return made

    def derive(self, excs):
        return OwnGroup(excs, self.code)


@pytest.mark.parametrize(
    ("error", "inner"),
    [
        (ExceptionGroup("g", [OfTwo(1, 2)]), lambda e: e.exceptions[0]),
        (
            BaseExceptionGroup("g", [KeyError(), ExceptionGroup("h", [OfTwo(1, 2)])]),
            lambda e: e.exceptions[1].exceptions[0],
        ),
        (OwnGroup([OfTwo(1, 2)], 7), lambda e: e.exceptions[0]),
        (ExceptionGroup("g" * 500_000, [OfTwo(1, 2)]), lambda e: e.exceptions[0]),
        (ValueError(OfTwo(1, 2)), lambda e: e.args[0]),
        (ValueError("x", [3, OfTwo(1, 2)]), lambda e: e.args[1][1]),
    ],
)
def test_exceptions_in_an_exception_are_rebuilt_as_it_is(error, inner, store):
    found = exception_of([end(0, error, store)], 1, store)
    assert type(found).__name__ == type(error).__name__ and isinstance(found, type(error))
    assert (type(inner(found)), inner(found).args, inner(found).a) == (OfTwo, ("m",), 1)


def test_members_of_a_group_that_can_be_rebuilt_come_as_they_pickle_themselves(store):
    error = ExceptionGroup("g", [FileNotFoundError(2, "no such file", "f"), OfTwo(1, 2)])
    found = exception_of([end(0, error, store)], 1, store)
    lacks, other = found.exceptions
    assert (lacks.filename, lacks.errno, type(other)) == ("f", 2, OfTwo)
    assert found.args[1][0] is lacks and found.args[1][1] is other
    caught = []
    try:
        raise found
    except* OfTwo as group:
        caught += group.exceptions
    except* FileNotFoundError:
        pass
    assert caught == [other]


def raised(error, store, **more):
    return RaisedError(
        type_name=type(error).__qualname__, message=str(error), value=pack_exception(error, store),
        **more,
    )  # fmt: skip


def test_what_python_shows_before_an_exception_is_before_it_here(store):
    lock = RaisedError(type_name="Lock", message="no pickle", value=None)
    frames = (CodeFrame("train.py", 3, "step"),)
    before = (raised(OSError(2, "inner"), store, frames=frames), lock)
    ends = [
        replace(done, failure=replace(done.failure, suppresses=suppresses, before=before))
        for done in [end(0, ValueError("bad"), store)]
        for suppresses in (True, False)
    ]
    caused, came_up = (exception_of([each], 1, store) for each in ends)
    assert caused.__context__ is None and caused.__suppress_context__
    assert came_up.__cause__ is None and not came_up.__suppress_context__
    for error in (caused.__cause__, came_up.__context__):
        assert (type(error), error.errno) == (FileNotFoundError, 2)
        assert traceback.extract_tb(error.__traceback__)[0].name == "step"
        assert isinstance(error.__context__, sky.RemoteError)
        assert str(error.__context__) == "Lock: no pickle"
    plain = exception_of([ends[0]], 1, store, only_values=True)
    assert plain.__cause__.errno is None, "made of its text"
    (none,) = [exception_of([end(0, ValueError("bad"), store)], 1, store)]
    assert none.__cause__ is None and none.__context__ is None


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x" * 500_000),
        ValueError(["y" * 500_000], 3),
        Long(3),
        ExceptionGroup("g" * 500_000, [ValueError("z" * 500_000)]),
    ],
)
def test_the_text_of_an_exception_is_bounded_and_its_type_stays(error, store):
    found = exception_of([end(0, error, store)], 1, store)
    assert isinstance(found, type(error))
    assert type(found).__name__ == type(error).__name__
    assert len(str(found)) < 3 * MESSAGE
    assert sum(map(len, found.__notes__)) < 3 * MESSAGE


def test_long_arguments_that_are_not_in_the_text_stay(store):
    error = OSError(2, "no such file", "f")
    error.output = b"o" * 500_000
    found = exception_of([end(0, error, store)], 1, store)
    assert (str(found), found.output) == (str(error), error.output)


def test_what_has_no_text_at_all_is_still_raised(store):
    failure = Failure(
        type_name="Broken", message="its __str__ raised RuntimeError", at=None, traceback=(),
        value=pack_exception(Broken(), store),
    )  # fmt: skip
    found = exception_of([RankDone(run=1, rank=0, failure=failure)], 1, store)
    assert isinstance(found, Broken) and type(found).__name__ == "Broken"
    assert str(found) == "its __str__ raised RuntimeError"


def test_ranks_of_which_nobody_saw_the_end_are_told_in_one_line():
    lost = {rank: RankLost(1, rank, ENDED) for rank in (0, 1)}
    assert how_died(lost, {}) == ["ranks 0-1 ended earlier"]
    assert how_died({1: lost[1]}, {}) == ["rank 1 ended earlier"]


def test_deaths_that_followed_others_are_told_after_their_cause():
    lost = {0: RankLost(1, 0, "crashed: SIGSEGV"), 2: RankLost(1, 2, "exited with code 3")}
    assert how_died(lost, {}, then=[0]) == ["rank 2 exited with code 3; rank 0 crashed: SIGSEGV"]
    assert str(died(lost, {}, "", then=[0])).startswith("rank 2 exited with code 3; rank 0")


def test_last_words_of_the_dead_are_bounded():
    error = died({1: RankLost(1, 1, "killed by SIGKILL")}, {1: "w" * 500_000}, "")
    assert len(str(error)) < 2 * MESSAGE
    assert error.ranks == {1: "killed by SIGKILL"}


def test_a_timeout_says_who_waited_in_its_text_and_where_in_its_notes():
    waits = RankLocation(
        (SourceLocation("Cell In[3]", 2, "<module>", "meet()", is_users=True),), "barrier"
    )
    sleeps = RankLocation((SourceLocation("Cell In[3]", 1, "<module>", "sleep(9)", is_users=True),))
    error = timed_out(600, StalledRun({0: waits, 1: sleeps}), {0: (), 1: ()}, ("names are kept",))
    assert isinstance(error, sky.RunTimeout)
    assert isinstance(error, sky.SkyError)
    assert isinstance(error, TimeoutError)
    assert str(error) == (
        "after 10 min rank 0 waited in barrier for rank 1, which was in Cell In[3], line 1: sleep(9)"
    )
    assert error.__notes__ == [
        "rank 0, in barrier:\n  Cell In[3], line 2: meet()\nrank 1:\n  Cell In[3], line 1: sleep(9)",
        "names are kept",
    ]
    assert (error.timeout, error.running, error.stacks) == (600, (0, 1), {0: (), 1: ()})
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.running, again.__notes__) == (
        str(error), error.running, error.__notes__,
    )  # fmt: skip


def test_a_timeout_of_ranks_that_all_ended_meanwhile_says_so():
    assert str(timed_out(5, StalledRun({}, {0: "finished"}), {})) == (
        "after 5 s all ranks came to the cell's end"
    )
