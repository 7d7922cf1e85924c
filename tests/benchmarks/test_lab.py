"""What the Lab extension costs the server and the page: `make bench`, with Chromium (`make tools`)."""

from __future__ import annotations

import http.client
import os
import re
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

import msgspec
import psutil
import pytest
from contenders import OURS
from lab import labs, pages, pool_cards
from lab.apart import Apart
from lab.pool_rows import row
from pools import start

from skyward_nb.lab.pool_panel import PanelPool, PanelState
from skyward_nb.reports.status import RankRow, RunRow

POLL = "/skyward/pools"
BYTES, WIDTH = 100_000_000, 100
PRINTS = f"""%%sky_remote nodes=2
for n in range({BYTES // WIDTH // 2}):
    print(f"{{n:>12}}", "x" * {WIDTH - 14})
"""
FRAME = "20 ms a frame, which is 50 frames/s"
# [frames a second, the longest of them in milliseconds, pixels that were scrolled]
SCROLL = """async ([selector, step]) => {
  const node = selector ? document.querySelector(selector) : null;
  const from = node?.scrollTop;
  const frames = [];
  const begin = performance.now();
  let last = begin;
  while (last < begin + 3000) {
    const now = await new Promise(requestAnimationFrame);
    frames.push(now - last);
    last = now;
    if (node) { node.scrollTop += step; }
  }
  return [1000 * frames.length / (last - begin), Math.max(...frames.slice(1)), node ? node.scrollTop - from : 0];
}"""
pytestmark = [pytest.mark.timeout(600), pytest.mark.parametrize("who", [OURS])]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[labs.LabServer]:
    """A Jupyter server, whose pools are those of this module alone."""
    if reason := pages.missing():
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="sky-") as folder, pytest.MonkeyPatch.context() as own:
        own.setenv("SKYWARD_RUNTIME_DIR", f"{folder}/run")
        own.setenv("SKYWARD_LOG_DIR", f"{folder}/logs")
        with labs.lab_server(tmp_path_factory.mktemp("lab"), Apart(None)) as made:
            yield made


@contextmanager
def notebook(
    server: labs.LabServer, folder: Path, name: str = "lab.ipynb"
) -> Iterator[pages.NotebookPage]:
    """A notebook in a page with the renderer."""
    pages.write_notebook(server.root / name)
    with pages.chromium_at(server.apart, folder) as browser:
        with pages.with_renderer(server, browser, name) as made:
            yield made


def asker(server: labs.LabServer) -> Callable[[str], bytes]:
    """Asks what a page asks, over one connection as a browser does."""
    at = urlsplit(server.url)
    line = http.client.HTTPConnection(str(at.hostname), at.port)
    headers = {"Authorization": f"token {server.token}"}

    def ask(path: str) -> bytes:
        line.request("GET", f"{at.path.rstrip('/')}{path}", headers=headers)
        answer = line.getresponse()
        body = answer.read()
        assert answer.status == 200, body
        return body

    return ask


@pytest.mark.parametrize("pools", [1, 8])
def test_what_a_poll_of_the_panel_costs_the_server(server, figure, who, pools):
    made = [start(name=f"p{number}", nodes=4) for number in range(pools)]
    process = psutil.Process(server.process.pid)

    def spent() -> float:
        used = process.cpu_times()
        return used.user + used.system

    ask = asker(server)

    def cost(path: str, count: int, pause: float = 0) -> float:
        """Milliseconds of an answer, less what the server takes by itself meanwhile."""
        before = spent()
        time.sleep(count * pause)
        idle, before = spent() - before, spent()
        for _ in range(count):
            time.sleep(pause)
            ask(path)
        return (spent() - before - idle) / count * 1000

    try:
        for path in ("/api", POLL) * 50:
            ask(path)
        assert len(msgspec.json.decode(ask(POLL))["pools"]) == pools
        bare, busy = cost("/api", 500), cost(POLL, 500)
        # As a panel does: between polls nothing stays in the processor's caches.
        bare_seldom, seldom = cost("/api", 100, 0.1), cost(POLL, 100, 0.1)
    finally:
        for each in made:
            each.close()
    figure(
        f"a poll of the panel, {pools} × 4 ranks: CPU of the server",
        f"{busy:.2f} ms one after another, {seldom:.2f} ms at ten a second "
        f"(a bare answer of the server: {bare:.2f} and {bare_seldom:.2f} ms)",
        "1.5 ms",
        max(busy, seldom) <= 1.5,
    )


def test_how_soon_a_killed_rank_is_named(server, figure, who, tmp_path):
    took: list[float] = []
    with notebook(server, tmp_path) as shown:
        pool_cards.open_panel(shown)
        for number in range(5):
            pool = start(name=f"k{number}", nodes=2)
            try:
                card = shown.page.locator(".sky-pool")
                card.locator(".sky-chip").nth(1).wait_for()
                # All begins with a poll: five moments of the second until the next one.
                time.sleep(number / 5)
                os.kill(pool.context.state.pids[1], signal.SIGKILL)
                began = time.perf_counter()
                card.get_by_text(re.compile("^rank 1: killed by SIGKILL")).wait_for()
                took.append(time.perf_counter() - began)
            finally:
                pool.close()
            card.wait_for(state="detached")
    figure(
        "a killed rank is named in the panel",
        f"after {median(took):.2f} s, at most {max(took):.2f} s (5 ranks)",
        "2 s",
        max(took) <= 2,
    )


def test_how_often_the_server_is_asked(server, figure, who, tmp_path):
    with notebook(server, tmp_path) as shown:
        asked: list[str] = []
        shown.page.on(
            "request",
            lambda request: asked.append(request.url) if "/skyward/" in request.url else None,
        )
        shown.run_cell(pages.LOAD)
        cell = shown.add_cell("%%sky_remote nodes=2\nimport time\nprint('begun')\ntime.sleep(100)")
        shown.run_cell(cell, wait=False)
        shown.output(cell).locator(".sky-record[data-is='live']").wait_for()
        pool_cards.open_panel(shown)
        counts: dict[str, list[float]] = {}
        for hidden in (False, True):
            shown.set_hidden(hidden)
            shown.page.wait_for_timeout(2000)  # one may be on its way
            asked.clear()
            began = time.monotonic()
            shown.page.wait_for_timeout(20_000)
            seconds = time.monotonic() - began
            polls = sum(POLL in each for each in asked)
            counts[str(hidden)] = [polls / seconds, (len(asked) - polls) / seconds]
        shown.set_hidden(False)
        shown.interrupt()
        shown.wait_idle()
        shown.run_cell(pages.DOWN)
    visible, unseen = counts["False"], counts["True"]
    figure(
        "requests of the panel and of a run that goes on, a second",
        f"visible {visible[0]:.2f} and {visible[1]:.2f}, hidden {unseen[0]:.2f} and {unseen[1]:.2f}",
        "1 each, and none while the tab is hidden",
        max(visible) <= 1 + 1 / 20 and max(unseen) == 0,  # where the seconds begin is chance
    )


def frames_of(page: pages.NotebookPage, selector: str, step: int) -> tuple[str, float]:
    """Three seconds of scrolling, in words, and the milliseconds that a frame took."""
    rate, longest, pixels = page.page.evaluate(SCROLL, [selector, step])
    words = f"{rate:.1f} frames/s, the longest took {longest:.0f} ms, {abs(pixels):,.0f} pixels"
    return words, 1000 / rate


def test_a_run_of_100_mb_scrolls(server, figure, who, tmp_path):
    with notebook(server, tmp_path) as shown:
        alone, _ = frames_of(shown, "", 0)
        where = (
            f"Chromium without a GPU, {os.cpu_count()} processors; where nothing scrolls {alone}"
        )
        shown.run_cell(pages.LOAD)
        cell = shown.add_cell(PRINTS)
        shown.run_cell(cell, wait=False)
        shown.wait_idle(300_000)
        record = shown.output(cell).locator(".sky-record[data-is='over']")
        record.wait_for()
        log = record.locator(".sky-log .sky-out")
        took: list[str] = []

        def scrolls(what: str, selector: str, step: int) -> None:
            words, frame = frames_of(shown, selector, step)
            figure(f"a run of 100 MB: {what} scrolls", f"{words} ({where})", FRAME, frame <= 20)

        def opens(button: str, line: int) -> None:
            began = time.perf_counter()
            record.get_by_role("button", name=button, exact=True).click()
            log.get_by_text(f"{line:>12} xx").first.wait_for(state="attached")
            took.append(f"{button} {time.perf_counter() - began:.2f} s")

        scrolls("the part that the notebook keeps", ".sky-record .sky-out", -200)
        opens("Full log", 0)
        scrolls("the full log", ".sky-log .sky-out", 200)
        scrolls("the full log, 2,000 pixels a frame,", ".sky-log .sky-out", 2000)
        opens("End", BYTES // WIDTH // 2 - 1)
        scrolls("the full log from its end up", ".sky-log .sky-out", -200)
        opens("Beginning", 0)
        scrolls(f"the notebook around it ({', '.join(took)})", ".jp-WindowedPanel-outer", 20)
        shown.run_cell(pages.DOWN)


def test_thirty_pools_of_256_ranks_scroll(server, figure, who, tmp_path):
    ranks = tuple(RankRow(rank, rank // 8, rank) for rank in range(256))
    runs = (None, RunRow(7, "Cell In[7]", 0.0, tuple(range(256))))
    bodies = [
        msgspec.json.encode(
            PanelState(
                tuple(
                    PanelPool(
                        row(number, ranks=ranks, nodes=32, ranks_per_node=8, run=run), f"p{number}"
                    )
                    for number in range(30)
                ),
                "/run",
            )
        )
        for run in runs
    ]
    with notebook(server, tmp_path) as shown:
        # All of their ranks change from one second to the next.
        shown.page.route(
            lambda url: url.split("?")[0].endswith(POLL),
            lambda route: route.fulfill(
                body=bodies[int(time.monotonic()) % 2], content_type="application/json"
            ),
        )
        pool_cards.open_panel(shown)
        shown.page.wait_for_function("document.querySelectorAll('.sky-chip').length === 30 * 256")
        words, frame = frames_of(shown, "#skyward-nb-pools", 40)
    figure(
        "30 pools of 256 ranks, all of which change each second: the panel scrolls",
        words,
        FRAME,
        frame <= 20,
    )
