"""`%sky check` in real kernels: what ranks are, how they reach one another, how fast they reduce."""

from __future__ import annotations

import re

import psutil
import pytest
from kernels import ready
from later import needs

from skyward_nb.reports.pool_check import (
    pair_to_measure,
    survey,
    survey_lines,
    why_not_reduced,
)
from skyward_nb.words.errors import PoolError
from skyward_nb.words.findings import PathSpeed, RankFacts, ReachResult, ReduceTiming
from skyward_nb.words.ranks import parse_ranks
from skyward_nb.words.spec import PoolSpec

needs_torch = needs("torch")
needs_jax = needs("jax")


@pytest.fixture(scope="module")
def notebook():
    with ready() as running:
        yield running


@pytest.fixture(scope="module")
def plain(notebook):
    assert notebook.run("%sky up pool=plain nodes=2 ranks_per_node=2").status == "ok"
    return notebook


@pytest.fixture(scope="module")
def torch_pool(notebook):
    ran = notebook.run("%%sky_remote pool=t nodes=2 framework=torch grace=20s\nkept = 5\n'before'")
    assert ran.status == "ok", ran.traceback
    return notebook


def listening(pids):
    return [
        (connection.laddr.ip, connection.laddr.port)
        for pid in pids
        for connection in psutil.Process(pid).net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]


def test_without_a_pool_there_is_nothing_to_check(notebook):
    ran = notebook.run("%sky check pool=none_of_it")
    assert ran.error[0] == "PoolError" and "there is no pool 'none_of_it'" in ran.traceback


def test_another_word_says_what_there_is(notebook):
    ran = notebook.run("%sky check hnag")
    assert "there is no pool of this name; did you mean hang?" in ran.stderr
    assert "nodes= is not an option here" in notebook.run("%sky check nodes=2").stderr


def test_a_pool_without_a_framework(plain):
    ran = plain.run("%sky check pool=plain")
    assert ran.status == "ok" and not ran.displays, ran
    lines = ran.stdout.splitlines()
    assert re.match(r"all 4 ranks have the same: .+, on 2 nodes$", lines[0])
    assert [line.split()[:2] for line in lines[2:6]] == [
        ["0", "0"],
        ["1", "0"],
        ["2", "1"],
        ["3", "1"],
    ]
    assert lines[6].startswith("versions: the same on all ranks: Python 3.")
    assert lines[7].startswith("all 6 pairs of ranks reach each other (TCP, round trip ")
    assert "all-reduce is not measured: the pool is made with no framework" in lines[8]
    assert re.match(r"one TCP connection between nodes \d and \d \(ranks \d and \d\): ", lines[9])


def test_names_on_ranks_and_the_last_value_stay(plain):
    plain.run("%%sky_remote pool=plain\nx = 1\n'mine'")
    before = plain.run("%sky vars pool=plain").stdout
    assert plain.run("%sky check pool=plain").status == "ok"
    assert plain.run("%sky vars pool=plain").stdout == before
    assert plain.run("%%sky_remote pool=plain\n_").result == "[0-3] 'mine'"


def test_nothing_listens_afterwards(plain):
    pids = eval(
        plain.run("%%sky_remote pool=plain out=pids\nimport os\nos.getpid()")
        and plain.run("list(pids)").result
    )
    before = listening(pids)
    assert plain.run("%sky check pool=plain").status == "ok"
    assert listening(pids) == before == []


def test_while_a_cell_runs_it_says_so(plain):
    plain.run("%%sky_remote pool=plain detach out=work\nimport time; time.sleep(30)")
    ran = plain.run("%sky check pool=plain")
    assert ran.error[0] == "PoolError" and "runs a cell in the background" in ran.traceback
    plain.run("work.cancel()")
    plain.run("work.wait(60)")
    assert plain.run("%sky check pool=plain").status == "ok"


def test_one_rank(notebook):
    notebook.run("%sky up pool=one")
    ran = notebook.run("%sky check pool=one")
    assert ran.stdout.startswith("1 rank has ")
    assert "there is no second rank to reach" in ran.stdout
    assert "all-reduce is not measured: there is one rank" in ran.stdout
    notebook.run("%sky down pool=one")


@needs_torch
@pytest.mark.torch
def test_all_reduce_through_torch(torch_pool):
    # All sizes, however long a rank was held up within the smallest, from which the others are reckoned.
    patient = "import skyward_nb.runtime.reductions as r\nr.all_reduces.__defaults__ = (60.0,)"
    assert torch_pool.run(f"%%sky_remote pool=t\n{patient}").status == "ok"
    ran = torch_pool.run("%sky check pool=t", timeout=90)
    assert ran.status == "ok", ran.traceback
    assert re.search(r"torch \d", ran.stdout)
    _, table = ran.stdout.split("all-reduce of 2 ranks through torch", 1)
    rows = [line.split() for line in table.splitlines()[2:]]
    assert [row[:2] for row in rows[:3]] == [["1", "kB"], ["10", "kB"], ["100", "kB"]]
    # The two are measured one after the other: beside other work either may be the faster.
    assert re.search(r"has (\d+ %|[\d.]+ times the speed) of that", ran.stdout)
    assert torch_pool.run("%%sky_remote pool=t\nkept, _").result == "[0-1] (5, 'before')"


@pytest.mark.extensive
@needs_torch
@pytest.mark.torch
def test_an_interrupt_leaves_a_pool_that_works_and_nothing_that_listens(torch_pool):
    run = "%%sky_remote pool=t\nimport skyward_nb.runtime.reductions as r, time\n"
    slow = (
        run
        + "kind = r._Torch\nkind.prepare_, kind.prepare = kind.prepare, lambda *_: lambda: time.sleep(60)"
    )
    assert torch_pool.run(slow).status == "ok"
    message = torch_pool.begin("%sky check pool=t")
    heard = []
    while True:
        got = torch_pool.client.get_iopub_msg(timeout=60)
        if got["parent_header"].get("msg_id") == message and got["msg_type"] == "stream":
            heard.append(got["content"]["text"])
            if "pair" in "".join(heard) or "both ranks" in "".join(heard):
                break
    torch_pool.interrupt()
    ran = torch_pool.finish(message)
    assert ran.error[0] == "KeyboardInterrupt"
    assert torch_pool.run(run + "r._Torch.prepare = r._Torch.prepare_").status == "ok"
    assert torch_pool.run("%%sky_remote pool=t\nkept").result == "[0-1] 5"
    assert "all-reduce of 2 ranks" in torch_pool.run("%sky check pool=t", timeout=90).stdout


@needs_torch
@pytest.mark.torch
def test_a_group_that_code_destroyed_is_there_again(torch_pool):
    torch_pool.run(
        "%%sky_remote pool=t\nimport torch.distributed as dist\ndist.destroy_process_group()"
    )
    ran = torch_pool.run("%sky check pool=t", timeout=90)
    assert "in no process group" not in ran.stdout
    assert "all-reduce at its best" in ran.stdout
    assert torch_pool.run("%sky restart pool=t").status == "ok"


@pytest.mark.extensive
@needs_jax
def test_all_reduce_through_jax(notebook):
    assert notebook.run("%sky up pool=j nodes=2 framework=jax", timeout=90).status == "ok"
    ran = notebook.run("%sky check pool=j", timeout=90)
    assert "all-reduce of 2 ranks through jax" in ran.stdout, ran
    assert re.search(r"jax \d", ran.stdout)
    notebook.run("%sky down pool=j")


# ── with answers that are made up ───────────────────────────────────────────────────────


def fact(rank, node=0, **changes):
    kept = {"joined": ("torch",), "port": 4000, "versions": {"Python": "3.11.7"}} | changes
    return RankFacts(
        rank=rank, node=node, host="h", address=f"10.0.0.{node}", device="A100", memory=8, **kept
    )


class Ranks:
    """Answers as told, and notes what it was asked."""

    def __init__(self, facts, broken="") -> None:
        self._facts = facts
        self._broken = broken
        self.asked: list[str] = []

    def __call__(self, module, call, ranks=()):
        what = call.partition("(")[0]
        self.asked.append(what)
        if what == self._broken:
            raise PoolError("p", "it is gone")
        ranks = ranks or tuple(each.rank for each in self._facts)
        everyone = {each.rank for each in self._facts}
        answers = {
            "begin": lambda rank: self._facts[rank],
            "reach_others": lambda rank: [ReachResult(to, 1e-5) for to in everyone - {rank}],
            "link": lambda rank: PathSpeed(1e-5, 1e9),
            "all_reduces": lambda rank: [ReduceTiming(1000, len(everyone), 1e-4)],
            "close": lambda rank: None,
        }
        return {rank: answers[what](rank) for rank in ranks}


SPEC = PoolSpec(nodes=2, framework=("torch",))


def test_each_question_is_a_run_and_listening_ends_before_all_reduce():
    ranks = Ranks([fact(0), fact(1, 1)])
    lines = list(survey_lines(survey(SPEC, ranks)))
    assert ranks.asked == ["begin", "reach_others", "link", "close", "all_reduces"]
    assert lines[-1].startswith("all-reduce at its best")


@pytest.mark.parametrize("broken", ["begin", "reach_others", "link"])
def test_listening_ends_whatever_goes_wrong(broken):
    ranks = Ranks([fact(0), fact(1, 1)], broken)
    with pytest.raises(PoolError):
        list(survey(SPEC, ranks))
    assert ranks.asked[-1] == "close"


def test_listening_ends_when_whoever_reads_it_stops():
    ranks = Ranks([fact(0), fact(1, 1)])
    found = survey(SPEC, ranks)
    next(found)
    found.close()
    assert ranks.asked == ["begin", "close"]


def test_a_rank_that_lacks_its_framework_is_told_and_nothing_is_reduced():
    lacking = fact(1, 1, joined=(), troubles={"torch": "ImportError: no"})
    ranks = Ranks([fact(0), lacking])
    said = "\n".join(survey_lines(survey(SPEC, ranks)))
    assert "rank 1: torch cannot be imported: ImportError: no" in said
    assert "all-reduce is not measured: rank 1 is in no process group" in said
    assert "all_reduces" not in ranks.asked


@pytest.mark.parametrize(
    ("facts", "frameworks", "why"),
    [
        ([fact(0)], ("torch",), "there is one rank"),
        ([fact(0, devices=2, joined=("jax",))], ("jax",), ""),
        ([fact(0), fact(1)], (), "the pool is made with no framework, and it takes torch or jax"),
        ([fact(0), fact(1)], ("tensorflow",), "the pool is made with framework=tensorflow, and it"),
        ([fact(0), fact(1, joined=("torch", "jax"))], ("torch", "jax"), "ranks are in different"),
        ([fact(0), fact(1)], ("torch",), ""),
    ],
)
def test_why_all_reduce_is_not_measured(facts, frameworks, why):
    said = why_not_reduced(facts, frameworks)
    assert said.startswith(why) and bool(said) == bool(why)


def test_the_slowest_way_between_nodes_is_measured():
    facts = [fact(0), fact(1), fact(2, 1), fact(3, 2)]
    ways = {
        0: [ReachResult(1, 9.0), ReachResult(2, 1.0), ReachResult(3, 2.0)],
        1: [ReachResult(3, trouble="refused")],
    }
    assert pair_to_measure(facts, ways) == (0, 3)
    assert pair_to_measure(facts[:2], {0: [ReachResult(1, 9.0)]}) == (0, 1)
    assert pair_to_measure(facts[:2], {0: [ReachResult(1, trouble="no")]}) is None


def test_status_tells_of_a_rank_that_took_longer_until_the_next_cell(plain):
    ran = plain.run(
        "%%sky_remote pool=plain\nimport os, time\nif os.environ['RANK'] == '2': time.sleep(4)"
    )
    assert ran.status == "ok"
    plain.run("%sky check pool=plain")
    said = plain.run("%sky status pool=plain").stdout
    found = re.search(
        r"in the last cell ranks? ([\d,-]+) took [\d.]+ times as long as the others.*", said
    )
    assert found and 2 in parse_ranks("ranks", found[1], 4), said
    plain.run("%%sky_remote pool=plain\n1")
    # Were a rank stopped for a while, there would be another.
    assert found[0] not in plain.run("%sky status pool=plain").stdout


@needs_torch
@pytest.mark.torch
@pytest.mark.gpu
def test_a_gpu_is_told_with_its_driver(notebook):
    import torch

    if not torch.cuda.is_available():
        pytest.skip("there is no NVIDIA GPU")
    name = torch.cuda.get_device_name(0)
    word = name.removeprefix("NVIDIA ").split()[0]
    assert notebook.run(f"%sky up pool=g accelerator={word} framework=torch").status == "ok"
    ran = notebook.run("%sky check pool=g", timeout=90)
    assert f"1 rank has {name}" in ran.stdout
    assert re.search(r"CUDA [\d.]+, NCCL [\d.]+, driver [\d.]+", ran.stdout)
    notebook.run("%sky down pool=g")
