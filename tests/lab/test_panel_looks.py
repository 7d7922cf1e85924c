"""The panel "Pools" and the item of the status bar, as they show pools of which the server only tells."""

from __future__ import annotations

import re

import msgspec
import pytest
from tiers import few
from waiting import until

from lab import audits, pool_cards
from lab.pool_rows import row
from skyward_nb.lab.pool_panel import PanelPool, PanelState
from skyward_nb.picture.record import Cost
from skyward_nb.protocol.message_parts import Gpu
from skyward_nb.reports.status import RankRow, RunRow
from skyward_nb.show.run_progress import RankFigures, RunProgress

POLL = re.compile(r"/skyward/pools(\?|$)")


def show(notebook, pools, progress=None):
    """Have the server tell of these pools, and of the progress of runs; returns how often it was asked."""
    asked = []
    told = tuple(
        PanelPool(each, each.name, progress=progress if each.run else None) for each in pools
    )
    body = msgspec.json.encode(PanelState(told, "/run"))

    def answer(route):
        asked.append(route.request.url)
        route.fulfill(body=body, content_type="application/json")

    notebook.page.route(POLL, answer)
    return asked


@pytest.fixture
def routed(notebook):
    yield
    notebook.page.unroute(POLL)
    audits.dress(notebook, "Light")


def busy_pools():
    """Pools as they are seen at worst: one that runs and has cost most of its budget, one with lost ranks, one left."""
    run = RunRow(7, "Cell In[7]", 0.0, tuple(range(8)))
    cost = Cost(hourly=3.2, so_far=4.25, most=5.0, machines="2 × p5", source="AWS")
    lost = tuple(RankRow(rank, 0, rank, "ended" if rank in (1, 3) else "") for rank in range(4))
    cheap = Cost(hourly=0.05, so_far=0.0123, most=None, machines="", source="")
    many = tuple(RankRow(rank, rank // 128, rank) for rank in range(256))
    left = "left by a kernel of old.ipynb that is gone, ends itself in 9 min"
    return [
        row(0, run=run, doing="In[7] has been running for 4 min on 8 ranks", cost=cost),
        row(1, ranks=lost, cost=cheap),
        row(2, client=None, where=left, ranks=many, ranks_per_node=128),
    ]


def busy_progress():
    """How far the first of them is, and what its ranks use."""
    gpu = Gpu(used=30_000_000_000, total=80_000_000_000, busy=90, celsius=61)
    return RunProgress(
        written=0.0,
        headline="",
        words="epoch 66/100 · 66% · 3 it/s · 11 s left",
        part=0.66,
        ranks=tuple(RankFigures(rank, 97.0, 600_000_000, gpu) for rank in range(8)),
    )


def test_what_pools_cost_and_do_in_light_and_dark(notebook, panel, status, routed):
    show(notebook, busy_pools(), busy_progress())
    status.get_by_text("3 pools · 272 ranks · $3.25/h", exact=True).wait_for()
    assert "sky-trouble" in status.get_attribute("class")
    assert (
        status.get_attribute("title")
        == "ranks of pool1 have ended; most of the budget of pool0 is spent"
    )
    cards = panel.locator(".sky-pool")
    # What was just put there is not laid out yet, and has no inner text until it is.
    assert cards.locator(".sky-title").all_text_contents() == ["pool0", "pool1", "pool2"]
    assert "8 GPUs · 90 % · 240.0 of 640.0 GB" in cards.nth(0).text_content()
    chip = cards.nth(0).locator(".sky-chip").first.get_attribute("title")
    assert chip.splitlines()[1:] == ["processor 97 %", "memory 0.6 GB", "GPU 90 %, 30.0 of 80.0 GB"]
    assert "$3.20/h · $4.25 so far of at most $5.00" in cards.nth(0).text_content()
    assert "ranks 1,3 have ended" in cards.nth(1).text_content()
    assert "$0.050/h · $0.012 so far" in cards.nth(1).text_content()
    notebook.screenshot("panel-light")
    audits.dress(notebook, "Dark")
    notebook.screenshot("panel-dark")
    assert not notebook.console_errors


@pytest.mark.parametrize(("theme", "width"), few(1, audits.LOOKS))
def test_nothing_serious_is_in_the_way_of_anybody(notebook, panel, status, routed, theme, width):
    audits.axe_core()
    size = notebook.page.viewport_size
    audits.dress(notebook, theme)
    show(notebook, busy_pools(), busy_progress())
    cards = panel.locator(".sky-pool")
    until(lambda: cards.count() == 3)
    notebook.page.set_viewport_size({"width": width, "height": 900})
    # An answer, and one that is none.
    pool_cards.press(cards.nth(0), "Where?")
    cards.nth(0).locator(".sky-said.sky-trouble").wait_for()
    form = panel.locator(".sky-new")
    if form.get_attribute("open") is None:
        panel.get_by_text("New pool").click()
    panel.evaluate("node => node.scrollTo(0, 0)")
    notebook.screenshot(f"panel-{theme.lower()}-{width}")
    faults = audits.serious_faults(notebook, ".sky-panel", ".sky-status")
    form.scroll_into_view_if_needed()
    notebook.screenshot(f"form-{theme.lower()}-{width}")
    faults += audits.serious_faults(notebook, ".sky-panel")
    panel.get_by_text("New pool").click()
    notebook.page.set_viewport_size(size)
    faults += audits.faults_beside_the_panel(notebook, theme.lower())
    assert not faults


def test_nobody_is_asked_for_a_tab_that_is_hidden(notebook, panel, routed):
    asked = show(notebook, [row(0)])
    for _ in range(2):
        with notebook.page.expect_request(POLL):
            """It is asked again and again."""
    notebook.set_hidden(True)
    before = len(asked)
    notebook.page.wait_for_timeout(2500)  # two polls and more
    assert len(asked) <= before + 1, "one may be on its way"
    with notebook.page.expect_request(POLL):
        notebook.set_hidden(False)


def test_many_pools_of_many_ranks_scroll(notebook, panel, routed):
    ranks = tuple(RankRow(rank, rank // 8, rank) for rank in range(256))
    show(notebook, [row(number, ranks=ranks, nodes=32, ranks_per_node=8) for number in range(30)])
    until(lambda: panel.locator(".sky-pool").count() == 30)
    assert panel.locator(".sky-chip").count() == 30 * 256
    # Once cards have their true heights, what is seen does not move any more.
    frames = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
    notebook.page.evaluate(frames)
    panel.evaluate("node => { node.scrollTop = 400; }")
    notebook.screenshot("panel-many")
    assert panel.evaluate("node => node.scrollTop") == 400


def test_a_pool_on_other_machines_can_be_stopped_while_its_display_tells_of_a_run(
    notebook, panel, routed
):
    far = PanelPool(row(0, ranks=()), "pool0", "kernel", is_asked=False, progress=busy_progress())
    idle = PanelPool(row(1, ranks=()), "pool1", "kernel", is_asked=False)
    body = msgspec.json.encode(PanelState((far, idle), "/run"))
    notebook.page.route(
        POLL, lambda route: route.fulfill(body=body, content_type="application/json")
    )
    until(lambda: panel.locator(".sky-pool").count() == 2)
    runs, stands = panel.locator(".sky-pool").all()
    assert [each.get_attribute("data-state") for each in (runs, stands)] == ["running", "idle"]
    for card, may_stop in ((runs, True), (stands, False)):
        assert card.get_by_role("button", name="Interrupt").is_enabled() is may_stop
        assert card.get_by_role("button", name="Values").is_enabled() is not may_stop
        assert not card.get_by_role("button", name="Where?").is_enabled()
    pool_cards.press(runs, "Down")
    notebook.page.locator(".jp-Dialog").get_by_text("What runs there is interrupted.").wait_for()
    pool_cards.confirm(notebook, "Cancel")
    assert not notebook.console_errors
