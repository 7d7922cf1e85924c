"""Between a front end's debugger and ranks: which pools it holds, and what it does not do."""

import asyncio
import gc
import weakref
from types import SimpleNamespace

from skyward_nb.reports.debug_bridge import DebugBridge


class _Pool:
    pool_id = "a-1"


def bridge():
    own = SimpleNamespace(
        is_started=True,
        breakpoint_list={},
        stopped_threads=set(),
        just_my_code=True,
        event_callback=lambda _: None,
    )
    return DebugBridge(own)


def test_a_pool_is_held_until_its_last_run_is_over():
    made, pool = bridge(), _Pool()
    seen = weakref.ref(pool)
    made.began(pool, 1, (0, 1))
    made.began(pool, 2, (2,))
    made.over(pool, 1, (0, 1))
    made.over(pool, 2, (5,))
    del pool
    gc.collect()
    assert seen() is not None, "rank 2 may still be sent a breakpoint"
    made.over(seen(), 2, (2,))
    gc.collect()
    assert seen() is None


def test_pause_is_refused_with_what_to_do_instead():
    made, pool = bridge(), _Pool()
    made.began(pool, 1, (0,))
    reply = asyncio.run(made.answer({"command": "pause", "seq": 5}, lambda _: None))
    assert (reply["success"], reply["command"], reply["request_seq"]) == (False, "pause", 5)
    assert "Set a breakpoint instead" in reply["message"]
