"""What a pool of any engine does as one of this machine does: cells, values, pictures; and how it is found again."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys

import msgspec
from msgspec.structs import replace
from pools import follow, found, request, start, values
from waiting import until

from skyward_nb.pickling.payload import unpack
from skyward_nb.picture.page import as_html
from skyward_nb.picture.text import as_text
from skyward_nb.pool import registry
from skyward_nb.protocol.events import Phase, Progress, Telemetry, Waited
from skyward_nb.view.folding import fold
from skyward_nb.view.run_view import RankView, RunView
from skyward_nb.words.errors import PoolError

SIZE = 256 << 20
CELLS = 20
_SHOWN = """
import sys, time
import skyward_nb as sky
print("on all", flush=True)
print("warned", file=sys.stderr)
sky.log(loss=0.5, step=1)
time.sleep({pause})
for each in sky.progress(range(3), desc="epochs"):
    pass
if sky.rank():
    print("on one, \\x1b[31mred\\x1b[0m")
1 / sky.rank()
"""


def does_as_one_of_this_machine(pool):
    """Warm cells, a value of 256 MB there and back, and the picture of a run that fails."""
    size = len(pool.ranks)
    assert [values(pool, f"{each}") for each in range(CELLS)] == [[n] * size for n in range(CELLS)]
    large = os.urandom(SIZE)
    assert values(pool, "big[-1], len(big)", {"big": large}) == [(large[-1], SIZE)] * size
    body = f"import os\nbig if os.environ['RANK'] == '{size - 1}' else None"
    pool.look(lambda _: None)
    whole = dataclasses.replace(request(pool, body, {"big": large}), limit=1 << 30)
    outcome = pool.run(whole, lambda _: None)
    assert unpack(outcome.done[size - 1].value, pool.store) == large
    assert _shown(pool) == _shown_here(size)


def _shown(pool):
    """The pictures of a run that prints, counts and fails, and its error."""
    pool.look(lambda _: None)
    events = []
    return _drawn(
        pool,
        pool.run(request(pool, _SHOWN.format(pause=0), on_error="wait"), events.append),
        events,
    )


def _shown_here(size):
    here = start(name="here", nodes=size)
    try:
        return _shown(here)
    finally:
        here.close()


def _drawn(pool, outcome, events):
    # What was measured differs from run to run: a bar says its rate once it takes 50 ms, which three turns may here.
    told = [
        replace(each, seconds=0.0) if isinstance(each, Progress) else each
        for each in events
        if not isinstance(each, (Phase, Telemetry, Waited))
    ]
    view = fold(RunView(ranks={rank: RankView() for rank in pool.ranks}), *told)
    view = replace(view, state="failed", ended=1.0)
    errors = [(each.rank, each.failure.type_name, each.failure.message) for each in outcome.failed]
    return as_text(view), as_html(view), errors


# ── found again ─────────────────────────────────────────────────────────────────────────

_NOTEBOOK = """
import json, sys
sys.path[:0] = json.loads(sys.argv[1])
import msgspec
from pools import request
from skyward_nb.pool.pool import Pool
from skyward_nb.protocol.events import Output
from skyward_nb.providers.provider_table import PROVIDERS
from skyward_nb.words.spec import PoolSpec
def watch(event):
    if isinstance(event, Output):
        print(event.text, flush=True)
if __name__ == "__main__":
    spec = msgspec.json.decode(sys.stdin.read(), type=PoolSpec)
    pool = Pool(spec, PROVIDERS[spec.provider](), lambda _: None, pool_id=f"{spec.name}-abcdef")
    pool.start(lambda _: None)
    pool.look(lambda _: None)
    pool.run(request(pool, sys.argv[2], on_error="wait"), watch)
    import time
    time.sleep(600)
"""


def found_after_its_notebook_was_killed(spec):
    """A pool whose notebook was killed in mid-run, attached again: nothing of that run's picture is lost."""
    body = _SHOWN.format(pause=2)
    with subprocess.Popen(
        [sys.executable, "-c", _NOTEBOOK, json.dumps(sys.path), body],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as notebook:  # fmt: skip
        notebook.stdin.write(msgspec.json.encode(spec))
        notebook.stdin.close()
        assert b"on all" in notebook.stdout.readline()
        notebook.send_signal(signal.SIGKILL)
    (entry,) = registry.entries()
    again = until(lambda: attached_to(entry.pool_id))
    events = []
    outcome = follow(again, events.append)
    assert _drawn(again, outcome, events) == _shown_here(len(again.ranks))
    again.seen()
    return again


def attached_to(pool_id):
    """A pool, attached; None while its agents have not heard that its other client is gone."""
    again = found(type("Left", (), {"pool_id": pool_id}))
    try:
        again.attach(lambda _: None)
    except PoolError as error:
        assert "is in use by" in str(error), error
        return None
    return again
