"""How much of its time a rank waits in collectives."""

import sys

import pytest
from later import needs
from pools import request

from skyward_nb.node import collective_waits
from skyward_nb.node.collective_waits import Window
from skyward_nb.protocol.events import Waited
from skyward_nb.view.slow_ranks import slow_ranks

needs_torch = needs("torch")


def looked(looks, every=0.05):
    """A window of these looks, each as long after the one before it."""
    window = Window(10.0, 100)
    for number, waits_in in enumerate(looks, 1):
        window.look(10.0 + number * every, waits_in)
    return window


@pytest.mark.parametrize(
    ("looks", "share"),
    [
        (["backward", "", "backward", "all_reduce"] * 5, 0.75),
        ([""] * 20, 0.0),
        (["all_gather_into_tensor", "reduce_scatter_tensor"] * 10, 1.0),
        (["DistributedDataParallel.forward"] * 19 + ["broadcast"], 0.95),
        # By design one rank gives, another gets; who is at a barrier waits for anything.
        (["backward"] * 10 + ["recv"] * 10, None),
        (["backward"] * 10 + ["broadcast_object_list"] * 10, None),
        (["work.wait"] * 20, None),
        (["barrier"] * 20, None),
        (["step"] * 20, None),
    ],
)
def test_the_share_of_a_window(looks, share):
    assert looked(looks).share() == (share if share is None else pytest.approx(share))


def test_a_look_that_comes_late_was_kept_waiting_by_what_computes():
    assert looked(["backward"] * 20, every=0.5).share() == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("looks", "begun", "over"), [(20, 4, True), (20, 3, False), (3, 50, False), (9, 50, False)]
)
def test_a_window_is_long_enough_to_tell(looks, begun, over):
    assert looked([""] * looks).is_over(100 + begun) is over


def test_a_window_is_void_once_collectives_are_counted_anew():
    """The user destroyed the group and formed another one."""
    window = looked([""] * 20)
    assert window.is_void(99) and not window.is_void(100)


def test_the_frames_of_a_thread_are_those_that_cuts_look_at():
    from skyward_nb.plugins.collectives import frames_of_thread

    frame = sys._getframe()
    assert list(collective_waits._frames(frame))[1:] == list(frames_of_thread(frame))[1:]


LOOP = """
import pathlib, time, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
rank = dist.get_rank()
model = DDP(torch.nn.Linear(8, 8))
go, until = torch.ones(1), time.monotonic() + 150
while go.item():
    time.sleep(0.4 if rank == 2 else 0.01)  # much longer than a busy machine holds others up
    model.zero_grad()
    model(torch.ones(2, 8)).sum().backward()
    go.fill_(float(time.monotonic() < until and not pathlib.Path(stop).exists()))
    dist.all_reduce(go, op=dist.ReduceOp.MIN)
"""


@needs_torch
@pytest.mark.torch
@pytest.mark.timeout(180)
def test_the_rank_that_computes_longer_is_found_while_all_step_alike(lend, tmp_path):
    pool = lend(nodes=4, framework=("torch",))
    stop = tmp_path / "stop"
    waits = {}

    def watch(event):
        if isinstance(event, Waited):
            waits.setdefault(event.rank, []).append(event.share)
            # Another one that is held up is slow, too, for as long.
            if list(slow_ranks(waits)) == [2]:
                stop.touch()

    outcome = pool.run(request(pool, LOOP, {"stop": str(stop)}), watch)
    assert not outcome.failed
    assert stop.exists(), waits
