"""What the renderer of runs is told by the server: without a browser."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from picture import views

from skyward_nb.lab import run_pages
from skyward_nb.lab.run_pages import log_page, run_now
from skyward_nb.logs.logbook import Logbook
from skyward_nb.picture.record import MIME
from skyward_nb.pool import registry
from skyward_nb.pool.registry import PoolEntry
from skyward_nb.protocol.events import Output
from skyward_nb.show.canvas import bundle
from skyward_nb.show.kept_pictures import keep, keep_value, sweep
from skyward_nb.show.run_progress import ProgressFile
from skyward_nb.words.errors import OptionError
from skyward_nb.words.spec import PoolSpec

POOL = "far-3fa2b1"


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    monkeypatch.setenv("SKYWARD_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("SKYWARD_LOG_DIR", str(tmp_path / "logs"))


def test_a_run_is_gone_or_begun_or_live_or_over(tmp_path):
    assert run_now(POOL, 7).state == "gone"
    spec = PoolSpec(name="far", provider="ssh", nodes=2)
    registry.enter(PoolEntry(pool_id=POOL, spec=spec, notebook="", started=0.0))
    (entry,) = registry.entries()
    writer = ProgressFile(entry, 7)
    writer.write(views.running())
    before = set(registry.progress_file(entry).parent.iterdir())
    # Nobody has asked for the picture, so it was not drawn.
    assert run_now(POOL, 7).state == "begun"
    writer.write(views.running())
    live = run_now(POOL, 7)
    assert (live.state, live.data[MIME]["headline"]) == ("live", "Running on 4 ranks")
    assert 'id="sky-default-ab12cd-7-' in live.data["text/html"]
    assert run_now(POOL, 6).state == "gone"
    writer.remove()
    assert set(registry.progress_file(entry).parent.iterdir()) < before
    keep(f"{POOL}/7", bundle(replace(views.finished(), run=f"{POOL}/7")))
    over = run_now(POOL, 7)
    assert (over.state, over.data[MIME]["over"], over.value) == ("over", True, None)
    value = {"data": {"text/plain": "[0-3] 5"}, "metadata": {}}
    keep_value(f"{POOL}/7", value)
    assert run_now(POOL, 7).value == value
    keep_value(f"{POOL}/8", {"data": {"text/plain": "of a run that has no picture"}})
    keep_value(f"{POOL}/7", {"data": {"text/plain": "x" * 2_000_000}})
    assert run_now(POOL, 7).value == value
    sweep(0, 0)
    assert not list(tmp_path.glob("logs/*"))
    assert run_now("../far-3fa2b1", 7).state == "gone"


def test_a_log_comes_in_pages_of_ranks_with_what_is_sought():
    book = Logbook(POOL)
    for number in range(10):
        book.write(Output(number % 2, "stdout", f"line \x1b[1m{number}\x1b[0m of x\n", 7))
    book.close()
    run = f"{POOL}/7"

    def texts(*asked):
        page = log_page(run, *asked)
        return [line.text[9] for line in page.lines], page.next

    assert texts(0, 4, None, "") == ([*"0123"], 4)
    assert texts(8, 4, None, "") == ([*"89"], None)
    assert texts(-1, 3, None, "") == ([*"789"], None)
    assert log_page(run, -1, 3, None, "").first == 7
    back = log_page(run, -1, 3, None, "", 7)
    assert ([line.text[9] for line in back.lines], back.first, back.next) == ([*"456"], 4, 7)
    assert texts(1, 2, {1}, "") == ([*"35"], 3)
    assert texts(0, 9, None, "line 4 of") == ([*"4"], None)
    with pytest.raises(OptionError, match="not on disk"):
        log_page("far-3fa2b1/8", 0, 9, None, "")


def test_long_lines_come_in_pages_that_meet(monkeypatch):
    monkeypatch.setattr(run_pages, "_MOST_TEXT", 30_000)
    book = Logbook(POOL)
    for number in range(40):
        book.write(Output(0, "stdout", f"{number:02}" + "x" * 3000 + "\n", 7))
    book.close()
    run = f"{POOL}/7"
    ahead, begin = [], 0
    while begin is not None:
        page = log_page(run, begin, 100, None, "")
        assert (page.first, len(page.lines) < 20) == (begin, True)
        ahead += [line.text[:2] for line in page.lines]
        begin = page.next
    back, before = [], 40
    while before:
        page = log_page(run, -1, 100, None, "", before)
        assert (page.next, len(page.lines) < 20) == (before, True)
        back = [line.text[:2] for line in page.lines] + back
        before = page.first
    assert ahead == back == [f"{number:02}" for number in range(40)]
