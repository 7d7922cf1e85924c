"""Ranks that wait in collectives are freed, and form a new group: real ranks, real gloo."""

from __future__ import annotations

import psutil
import pytest
from later import needs
from leaks import leaves_nothing
from node.drivers import driver
from waiting import until

from skyward_nb.hangs.stacks import threads
from skyward_nb.plugins.collectives import waits_in
from skyward_nb.protocol.commands import CutCommunication
from skyward_nb.protocol.events import CommunicationCut, Output, RankDone

pytestmark = [
    pytest.mark.torch,
    needs("torch"),
    pytest.mark.timeout(180),
]

READY = (
    "import os, signal, socket, threading, time, torch, torch.distributed as dist\n"
    "from torch.distributed import _functional_collectives as functional\n"
    "from torch.distributed.device_mesh import init_device_mesh\n"
    "from torch.nn.parallel import DistributedDataParallel as DDP\n"
    "r, kept, t = dist.get_rank(), object(), torch.ones(1)\nnumber = id(kept)"
)


@pytest.fixture(scope="module")
def pool():
    with leaves_nothing(), driver(4, "torch") as made:
        assert not any(end.failure for end in made.ran(READY))
        works_again(made)
        yield made


@pytest.fixture
def four(pool):
    """Four ranks of which each has taken part in one collective; afterwards they can again."""
    since = len(pool.events)
    yield pool
    works_again(pool)
    told = [event for event in pool.events[since:] if isinstance(event, Output)]
    errors = "".join(event.text for event in told if event.stream == "stderr")
    # The store's client and the monitored barrier write why they give up, in C++.
    assert not errors or "[c10d]" in errors or "monitoredBarrier" in errors


def works_again(made):
    """The group is formed anew, and names and values are those there were."""
    made.reform()
    ends = made.ran(
        "t = torch.ones(1)\ndist.all_reduce(t)\nassert t.item() == 4\nassert id(kept) == number"
    )
    assert not any(end.failure for end in ends), ends
    # Groups that tests made go on, too: the default one is the first.
    assert [next(iter(end.steps.values())) for end in ends] == [1] * len(ends)


# What ranks 0, 2 and 3 wait in while rank 1 has ended, and its name.
WAITS = {
    "dist.all_reduce(t)": "all_reduce",
    "dist.barrier()": "barrier",
    "dist.broadcast(t, 1)": "broadcast",
    "dist.recv(t, 1)": "recv",
    "dist.all_gather([torch.ones(1) for _ in range(4)], t)": "all_gather",
    "dist.all_gather_object([None] * 4, 'x')": "all_gather_object",
    "dist.all_reduce(t, async_op=True).wait()": "work.wait",
    "work = dist.all_reduce(t, async_op=True)\n    work.wait()": "work.wait",
    "dist.new_group()": "new_group",
    "dist.monitored_barrier()": "monitored_barrier",
    "dist.distributed_c10d._get_default_store().get('nothing')": "store.get",
    "import skyward_nb as sky; sky.barrier()": "sky.barrier",
    "functional.all_reduce(t, 'sum', dist.group.WORLD).item()": "wait_tensor",
    "net = DDP(torch.nn.Linear(1, 1))": "DistributedDataParallel",
    # One group of all: a mesh of two by two makes some before the one that it waits in.
    "init_device_mesh('cpu', (4,), backend_override={0: 'gloo'})": "new_group",
}


@pytest.mark.parametrize("wait", WAITS)
def test_ranks_that_wait_for_one_that_has_ended(four, wait):
    body = f"print('here')\nif r != 1:\n    {wait}"
    # From outside a native method that user code calls itself is not to be seen.
    seen = "" if WAITS[wait] in ("work.wait", "store.get") else WAITS[wait]
    run = four.stuck(body, dict.fromkeys((0, 2, 3), seen or len(body.splitlines())))
    texts = []

    def have_said():
        """A rank that is held up may not say in time where it is."""
        texts[:] = four.stacks()
        return all(texts)

    until(have_said)
    mains = [threads(text)[0] for text in texts]
    frames = [[(spot.file, spot.function) for spot in main.frames] for main in mains]
    assert [waits_in(each) for each in frames] == [seen, "", seen, seen]
    four.interrupt(run)
    told = four.cut(run)
    # One that a peer's cut has freed before its own waits no more.
    assert {each.waited_in for each in told} <= {"", WAITS[wait]}
    assert told[1].cut
    ends = ended_once_cut(four, run)
    assert [end.interrupted for end in ends] == [True, False, True, True]
    assert [end.waited_in for end in ends] == [WAITS[wait], "", WAITS[wait], WAITS[wait]]


def freed(made, run, **waiting):
    """Interrupt and cut: how the run ended."""
    made.interrupt(run)
    made.cut(run)
    return ended_once_cut(made, run)


def ended_once_cut(made, run, ranks=None):
    """How the run ended; ranks are cut off again and again, as one may not have waited yet."""
    ranks = made.ranks if ranks is None else ranks

    def have_ended():
        return {each.rank for each in made.events if isinstance(each, RankDone) and each.run == run}

    while not {*ranks} <= have_ended():
        made.hear(0.3)
        if not {*ranks} <= have_ended():
            made.cut(run)
    return made.ended(run, ranks)


def test_every_rank_waits_each_in_another_collective(four):
    body = "print('here')\n[dist.barrier, lambda: dist.recv(t, 2), lambda: dist.recv(t, 3), lambda: dist.recv(t, 1)][r]()"
    ends = freed(four, four.stuck(body, {0: "barrier", 1: "recv", 2: "recv", 3: "recv"}))
    assert [end.waited_in for end in ends] == ["barrier", "recv", "recv", "recv"]
    assert all(end.interrupted for end in ends)


def test_ranks_that_wait_for_one_that_has_failed(four):
    body = "print('here')\nif r == 1: raise ValueError('first')\ndist.all_reduce(t)"
    run = four.stuck(body, dict.fromkeys((0, 2, 3), "all_reduce"))
    ends = freed(four, run)
    assert ends[1].failure.message == "first"
    assert not ends[1].interrupted
    assert not ends[1].waited_in
    assert [next(iter(end.steps.values())) for end in ends] == [2, 1, 2, 2]
    assert [ends[rank].waited_in for rank in (0, 2, 3)] == ["all_reduce"] * 3


@pytest.mark.extensive
def test_averaging_of_gradients(four):
    body = (
        "torch.manual_seed(0)\nnet = DDP(torch.nn.Linear(100, 100))\n"
        "loss = net(torch.ones(1, 100)).sum()\nprint('here')\nif r != 3: loss.backward()"
    )
    run = four.stuck(body, dict.fromkeys((0, 1, 2), "backward"))
    four.interrupt(run)
    assert {each.waited_in for each in four.cut(run)} <= {"", "backward"}
    ends = four.ended(run)
    assert [end.waited_in for end in ends] == ["backward"] * 3 + [""]
    assert [end.interrupted for end in ends] == [True] * 3 + [False]
    four.reform()
    assert not any(end.failure for end in four.ran(body.replace("if r != 3: ", "")))


def test_a_group_of_some(four):
    body = (
        "pair = dist.new_group([2 * (r // 2), 2 * (r // 2) + 1], use_local_synchronization=True)\n"
        "print('here')\nif r == 0: dist.all_reduce(t, group=pair)\nif r == 3: dist.barrier(group=pair)"
    )
    ends = freed(four, four.stuck(body, {0: "all_reduce", 3: "barrier"}))
    assert [end.waited_in for end in ends] == ["all_reduce", "", "", "barrier"]
    assert [end.interrupted for end in ends] == [True, False, False, True]
    assert all(len(end.steps) > 1 for end in ends), ends


def test_code_that_catches_what_a_collective_raises_ends(four):
    body = (
        "print('here')\ncaught = 0\nwhile True:\n    try: dist.all_reduce(t) if r else time.sleep(100)\n"
        "    except RuntimeError: caught += 1"
    )
    ends = freed(four, four.stuck(body, {0: 4, **dict.fromkeys((1, 2, 3), "all_reduce")}))
    assert all(end.interrupted for end in ends)
    assert {end.failure.type_name for end in ends} == {"KeyboardInterrupt"}


def test_what_a_collective_is_in_is_left_before_the_interrupt_comes(four):
    """The signal is heard in the first instruction after the collective: in an `__exit__`."""
    body = "print('here')\nif r:\n    with torch.no_grad():\n        dist.group.WORLD.allreduce([t]).wait()"
    ends = freed(four, four.stuck(body, dict.fromkeys((1, 2, 3), 4)))
    assert [end.interrupted for end in ends] == [False, True, True, True]
    four.reform()
    ends = four.ran("assert torch.is_grad_enabled()")
    assert not any(end.failure for end in ends), ends


def test_code_that_catches_the_interrupt_and_waits_again(four):
    """What the collective raises for being cut is no failure of its own."""
    body = (
        "print('here')\ntry: time.sleep(100)\nexcept KeyboardInterrupt: print('caught')\n"
        "if r: dist.all_reduce(t)"
    )
    run = four.stuck(body, dict.fromkeys(four.ranks, 2))
    four.interrupt(run)
    four.said(run, "caught")
    four.waits(run, dict.fromkeys((1, 2, 3), "all_reduce"))
    four.cut(run)
    ends = ended_once_cut(four, run)
    assert [end.interrupted for end in ends] == [False, True, True, True]
    assert {end.failure.type_name for end in ends[1:]} == {"KeyboardInterrupt"}


def test_ordinary_code_is_left_alone(four):
    """As is what user code has connected itself."""
    body = (
        "server = socket.create_server(('127.0.0.1', 0))\n"
        "ours = socket.create_connection(server.getsockname())\ntheirs, _ = server.accept()\n"
        "end = time.monotonic() + 30\ntry:\n    print('here')\n"
        "    while r == 0 and time.monotonic() < end: sum(range(1000)); {}.get('a')\n"
        "    if r == 1: time.sleep(30)\n"
        "    if r == 2: threading.Event().wait(30)\n"
        "    if r == 3: socket.create_server(('127.0.0.1', 0)).accept()\n"
        "except KeyboardInterrupt: pass\n"
        "ours.sendall(b'still here'); print(theirs.recv(20))"
    )
    run = four.stuck(body)
    told = four.cut(run)
    assert not any(each.cut or each.waited_in for each in told)
    four.interrupt(run)
    assert not any(end.failure for end in four.ended(run))
    assert all("still here" in four.text(run, rank) for rank in four.ranks)
    # The group is whole, too.
    assert not any(end.failure for end in four.ran("dist.all_reduce(torch.ones(1))"))
    # Now cut: what the user connected is none of the group's.
    told = four.cut(run + 1)
    assert all(each.cut for each in told)
    ends = four.ran("ours.sendall(b'still here'); assert theirs.recv(20) == b'still here'")
    assert not any(end.failure for end in ends)


def test_a_cut_for_a_run_that_is_over_leaves_the_next_one_alone(four, tmp_path):
    go = tmp_path / "go"
    run = four.stuck(
        f"print('here')\nwhile not os.path.exists({str(go)!r}): time.sleep(0.02)\ndist.all_reduce(t)"
    )
    told = four.cut(run - 1)
    go.touch()
    assert not any(each.cut for each in told)
    assert not any(end.failure for end in four.ended(run))


def test_a_rank_that_has_ended_is_cut_only_where_others_of_its_group_were(four):
    run = four.start("pass")
    four.ended(run)
    four.link.send(CutCommunication(run, four.ranks))
    said = four.wait(CommunicationCut, four.ranks, run=run)
    assert not any(each.cut for each in said), "each had ended before it was asked"


def test_one_that_waits_for_a_peer_in_ordinary_code(four, tmp_path):
    """Its own ends of the connections are cut, whichever side opened them."""
    for head in range(4):
        go = tmp_path / f"go{head}"
        waits_on = f"while not os.path.exists({str(go)!r}): time.sleep(0.02)"
        body = f"print('here')\ntry:\n    if r == {head}: time.sleep(100)\n    else: dist.recv(t, {head})\nexcept KeyboardInterrupt:\n    if r != {head}: raise\n    {waits_on}"
        waits = {rank: 3 if rank == head else "recv" for rank in four.ranks}
        run = four.stuck(body, waits)
        four.interrupt(run)
        told = four.cut(run)
        assert not told[head].cut
        ends = ended_once_cut(four, run, [rank for rank in four.ranks if rank != head])
        assert [(end.interrupted, end.waited_in) for end in ends] == [(True, "recv")] * 3, ends
        go.touch()
        assert not four.ended(run)[head].failure
        works_again(four)


def test_a_rank_that_is_cut_on_its_way_out_of_a_collective_has_waited_in_that(four, tmp_path):
    go = tmp_path / "go"
    mesh = (
        "def make_mesh():\n    try: dist.all_reduce(t)\n    except BaseException:\n"
        "        for _ in range(2):\n            try:\n                while not may_go: pass\n"
        "            except KeyboardInterrupt: pass\n        raise"
    )
    within = "/torch/distributed/device_mesh.py"
    body = (
        "may_go = []\ndef look():\n"
        f"    while not os.path.exists({str(go)!r}): time.sleep(0.02)\n    may_go.append(True)\n"
        f"threading.Thread(target=look).start()\nexec(compile({mesh!r}, {within!r}, 'exec'))\n"
        "print('here')\nif r != 1: make_mesh()"
    )
    run = four.stuck(body, dict.fromkeys((0, 2, 3), "all_reduce"))
    four.interrupt(run)
    four.cut(run)
    four.waits(run, dict.fromkeys((0, 2, 3), "make_mesh"))
    assert [each.waited_in for each in four.cut(run)] == ["make_mesh", "", "make_mesh", "make_mesh"]
    go.touch()
    assert [end.waited_in for end in four.ended(run)] == [
        "all_reduce",
        "",
        "all_reduce",
        "all_reduce",
    ]


def test_a_process_forked_by_the_cell_is_not_in_the_way(four):
    body = (
        "child = os.fork()\nif not child: signal.signal(2, signal.SIG_IGN); time.sleep(100); os._exit(0)\n"
        "print('here')\nif r: dist.all_reduce(t)"
    )
    ends = freed(four, four.stuck(body, dict.fromkeys((1, 2, 3), "all_reduce")))
    assert [end.interrupted for end in ends] == [False, True, True, True]
    four.ran("os.kill(child, 9); os.waitpid(child, 0)")


def test_a_cut_that_comes_after_the_group_was_formed_anew_leaves_that_one_alone(four):
    run = four.stuck("print('here')")
    four.ended(run)
    four.reform()
    assert not any(each.cut for each in four.cut(run))
    assert not any(end.failure for end in four.ran("dist.all_reduce(t)"))


LEFT = {
    "work on its way": "left = [dist.all_reduce(torch.ones(1), async_op=True)] if r else None",
    "a group of one's own": "left = dist.new_group([0, 1])",
    "no group at all": "dist.destroy_process_group()",
    "a model": "left = DDP(torch.nn.Linear(1, 1))",
    "a group of another kind": "dist.destroy_process_group(); s = dist.HashStore(); dist.init_process_group('gloo', store=s, rank=0, world_size=1)",
}


@pytest.mark.parametrize("left", LEFT)
def test_whatever_a_cell_left_a_new_group_is_formed(four, left):
    assert not any(end.failure for end in four.ran(LEFT[left]))
    works_again(four)
    four.ran("left = None")


def test_the_place_is_the_new_one(four):
    ends = four.ran("import skyward_nb as sky\nbefore = sky.instance_info()")
    four.reform()
    ends = four.ran(
        "now = sky.instance_info()\nassert now.generation == before.generation + 1\n"
        "assert os.environ['MASTER_PORT'] == str(now.head_port) != str(before.head_port)\n"
        "assert os.environ['TORCHELASTIC_RESTART_COUNT'] == str(now.generation - 1)\n"
        "assert now.rank == before.rank == dist.get_rank()"
    )
    assert not any(end.failure for end in ends), ends


@pytest.mark.extensive
def test_thirty_new_groups_leave_no_files_and_the_idle_threads_that_torch_keeps(four):
    wait = "print('here')\nif r != 1: dist.all_reduce(torch.ones(1))"
    processes = [psutil.Process(pid) for pid in four.pids.values()]
    files, threads = [], []
    for _ in range(30):
        freed(four, four.stuck(wait))
        works_again(four)
        files.append([each.num_fds() for each in processes])
        threads.append([each.num_threads() for each in processes])
    for rank in four.ranks:
        # Now and then the last group is not collected yet.
        assert min(each[rank] for each in files[20:]) <= min(each[rank] for each in files[:10])
        # A group lets no backend go that it had, and each of gloo's has two threads.
        assert threads[-1][rank] - threads[0][rank] <= 2 * 29
    assert four.pids == {rank: each.pid for rank, each in enumerate(processes)}
