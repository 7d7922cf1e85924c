"""How far a run is, as other processes read it: what is written, when, and that it is gone in the end."""

from __future__ import annotations

import contextlib

import pytest
from picture import views

from skyward_nb.picture.record import MIME
from skyward_nb.pool.registry import PoolEntry, progress_file
from skyward_nb.protocol.events import Progress
from skyward_nb.show import run_progress
from skyward_nb.show.display import RunDisplay
from skyward_nb.show.run_progress import (
    ProgressFile,
    ask_for_picture,
    newest_progress,
    progress_of,
    read_progress,
)
from skyward_nb.words.spec import PoolSpec


@pytest.fixture
def entry(tmp_path, monkeypatch):
    monkeypatch.setenv("SKYWARD_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "default-3fa2b1").mkdir()
    return PoolEntry(pool_id="default-3fa2b1", spec=PoolSpec(), notebook="", started=0.0)


class _Nothing:
    period = 0.1
    waits = False

    def draw(self, view):
        """Nothing."""

    def output(self, event):
        """Nothing."""


def shown(entry, *, quiet=False):
    display = RunDisplay(_Nothing(), "", quiet=quiet)
    display.running((0, 1), "Running", "", run="default-3fa2b1/7", number=7, nodes={})
    display.progress_file = ProgressFile(entry, 7)
    return display


def test_the_outermost_loop_of_all_ranks_counts():
    now = progress_of(views.running())
    assert now.headline == "Running on 4 ranks"
    assert now.words.startswith("epoch ") and 0 < now.part < 1
    assert [each.rank for each in now.ranks] == [0, 1, 2, 3]
    assert now.ranks[0].gpu.total == 8_000_000_000


@pytest.mark.parametrize("quiet", [False, True])
def test_a_run_is_told_of_once_a_second_until_it_ends(entry, monkeypatch, quiet):
    monkeypatch.setattr(run_progress, "PERIOD", 600.0)
    display = shown(entry, quiet=quiet)
    display.watch(Progress(0, 0, 1, 4, "epoch"))
    assert read_progress(entry, 7) is None, "a short run writes nothing"
    monkeypatch.setattr(run_progress, "PERIOD", 0.0)
    display = shown(entry, quiet=quiet)
    display.watch(Progress(0, 0, 1, 4, "epoch"))
    assert read_progress(entry, 7).part == 0.25
    (written,) = progress_file(entry).parent.iterdir()
    assert written.stat().st_mode & 0o077 == 0
    display.watch(Progress(0, 0, 2, 4, "epoch"))
    assert read_progress(entry, 7).part == 0.5
    display.end("finished", "done")
    assert not [*progress_file(entry).parent.iterdir()]


@pytest.mark.parametrize("fails", [False, True])
def test_it_goes_on_until_its_last_picture_is_drawn(entry, monkeypatch, fails):
    """A page that looks in between would find neither."""
    monkeypatch.setattr(run_progress, "PERIOD", 0.0)
    display = shown(entry)
    display.watch(Progress(0, 0, 1, 4, "epoch"))
    seen = []

    def drawn(view):
        seen.append(read_progress(entry, 7).part)
        if fails:
            raise OSError("no room")

    display._canvas.draw = drawn
    with pytest.raises(OSError, match="no room") if fails else contextlib.nullcontext():
        display.end("finished", "done")
    assert seen == [0.25]
    assert read_progress(entry, 7) is None


def test_what_is_stale_or_of_another_kind_is_not_believed(entry, monkeypatch):
    ProgressFile(entry, 7).write(views.running())
    assert read_progress(entry, 7) == newest_progress(entry)
    monkeypatch.setattr(run_progress, "STALE", 0.0)
    assert read_progress(entry, 7) is None
    (written,) = progress_file(entry).parent.iterdir()
    written.write_bytes(b"{}")
    assert read_progress(entry, 7) is None


def test_runs_that_go_on_at_once_are_told_of_each_by_itself(entry):
    writers = [ProgressFile(entry, number) for number in (9, 10)]
    for writer, view in zip(writers, (views.running(), views.finished()), strict=True):
        writer.write(view)
    assert read_progress(entry, 9).headline == "Running on 4 ranks"
    assert newest_progress(entry) == read_progress(entry, 10) != read_progress(entry, 9)
    assert ask_for_picture(entry, 9) is None, "it was not asked for yet"
    for writer, view in zip(writers, (views.running(), views.finished()), strict=True):
        writer.write(view)
    assert ask_for_picture(entry, 9).data[MIME]["over"] is False
    writers[1].remove()
    assert newest_progress(entry).headline == "Running on 4 ranks"
    assert ask_for_picture(entry, 9) and ask_for_picture(entry, 10) is None
    writers[0].remove()
    assert newest_progress(entry) is None


def test_where_nothing_can_be_written_the_run_goes_on(entry):
    progress_file(entry).parent.rmdir()
    writer = ProgressFile(entry, 7)
    writer.write(views.running())
    writer.remove()


def test_what_a_killed_kernel_wrote_of_a_run_goes_with_who_shows_its_end(entry):
    ProgressFile(entry, 7).write(views.running())
    assert ask_for_picture(entry, 7) is None
    ProgressFile(entry, 7).remove()
    assert len([*progress_file(entry).parent.iterdir()]) == 2, "it wrote none of them"
    ProgressFile(entry, 7, was_shown=True).remove()
    assert not [*progress_file(entry).parent.iterdir()]
