"""Pools on hosts that one logs in to: cells, calls and values there and back, and nothing left behind."""

from __future__ import annotations

import re

import pytest
from ddp_cell import DDP
from later import needs

pytestmark = pytest.mark.timeout(300)
HOSTS = 4
needs_torch = needs("torch")
needs_jax = needs("jax")

CALLS = """
pool = sky.Compute(provider=sky.SSH(hosts={names}, config={config!r}), image=here)
@sky.function
def where(word):
    return word, socket.gethostname()
with pool:
    one = where("one") >> pool
    every = where("all") @ pool
    several = [where(str(i)) >> pool for i in range(4)]
print([one, list(every), several])
"""


# ── cells, calls, values ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("count", [1, 8])
@pytest.mark.extensive
def test_cells_run_on_one_host_and_on_many(hosts, notebook, count):
    with notebook(hosts(count)) as book:
        cells_run_on_every_host(book)


def test_cells_run_on_every_host(book):
    cells_run_on_every_host(book)


def cells_run_on_every_host(book):
    names = book.town.names
    assert book.values("socket.gethostname()", timeout=150) == names
    book.here("x = 20")
    ran = book.well("y = x + 1\nprint('at', socket.gethostname(), os.getuid())")
    assert all(f"at {name} 4001" in ran.picture for name in names)
    assert book.values("y + 1") == [22] * len(names)


def test_ranks_are_at_home_and_import_nothing_from_there(hosts, notebook):
    town = hosts(1)
    for name in ("json", "msgspec", "random", "skyward_nb"):
        town[0].file(f"/home/ann/{name}.py").write_text("raise SystemExit('not this one')\n")
    with notebook(town) as book:
        book.well("import json, random\nwith open('made', 'w') as file:\n    file.write('here')")
        assert book.values("os.getcwd()") == ["/home/ann"]
    assert town[0].file("/home/ann/made").read_text() == "here"


@pytest.mark.extensive
def test_functions_are_called_on_hosts(hosts, notebook):
    town = hosts(2)
    with notebook(town) as book:
        said = book.here(CALLS.format(names=town.names, config=str(town.config)), timeout=90)
    one, every, several = eval(said.splitlines()[-1])
    assert one[0] == "one" and one[1] in town.names
    assert every == [("all", name) for name in town.names]
    assert {word for word, _ in several} == set("0123")


def test_large_values_go_there_and_come_back(book):
    book.here(
        "import hashlib\nlarge = os.urandom(30_000_000)\n"
        "mark = lambda value: hashlib.sha256(value).hexdigest()"
    )
    assert book.values("mark(large)") == [book.here("print(mark(large))").strip()] * len(
        book.town.names
    )
    book.well("own = os.urandom(20_000_000 + int(os.environ['RANK']))\nown", "out=back")
    marks = book.values("mark(own)")
    assert book.here("print([mark(each) for each in back])").strip() == str(marks)


def test_what_a_host_has_is_not_sent_again(book):
    book.here("large = os.urandom(10_000_000)")
    book.well("len(large)")
    before, _ = book.town.line.moved()
    book.well("len(large)")
    assert book.town.line.moved()[0] - before < 1_000_000


def test_a_value_goes_over_the_line_once_for_all_hosts(book):
    book.here("large = os.urandom(30_000_000)")
    before, _ = book.town.line.moved()
    assert book.values("len(large)") == [30_000_000] * HOSTS
    assert book.town.line.moved()[0] - before < 1.05 * 30_000_000 + 1_000_000


@pytest.mark.extensive
def test_modules_of_the_project_are_there_too(book, tmp_path):
    (tmp_path / "of_ours.py").write_text("def answer():\n    return 42\n")
    was = book.here("print(os.getcwd())").strip()
    book.here(f"os.chdir({str(tmp_path)!r})\nsys.path.insert(0, os.getcwd())\nimport of_ours")
    assert book.values("of_ours.answer()") == [42] * HOSTS
    book.here(f"sys.path.pop(0)\nos.chdir({was!r})")


def test_an_error_there_is_an_error_here(book):
    ran = book.cell("if os.environ['RANK'] == '1':\n    raise KeyError('there')")
    assert ran.error[0] == "KeyError" and "rank 1" in ran.picture
    assert book.values("socket.gethostname()") == book.town.names


def test_the_square_button_stops_what_runs_there(book):
    book.well("kept = 3")
    ran = book.kernel.stopped(book.code("print('here')\ntime.sleep(1000)"))
    assert ran.status == "error"
    assert book.values("kept") == [3] * HOSTS


@pytest.mark.extensive
def test_a_rank_that_dies_there_is_told_of_and_made_anew(book):
    ran = book.cell("if os.environ['RANK'] == '1':\n    os.kill(os.getpid(), 9)\ntime.sleep(30)")
    assert ran.error[0] == "RankDied"
    assert book.values("socket.gethostname()") == book.town.names


# ── frameworks ──────────────────────────────────────────────────────────────────────────


@needs_torch
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.extensive
def test_torch_trains_across_hosts(hosts, notebook, count):
    with notebook(hosts(count)) as book:
        torch_trains(book)


@needs_torch
def test_torch_trains_where_the_head_has_two_networks(hosts, notebook):
    """The second host knows the first by an address that the notebook never sees."""
    with notebook(hosts(2, behind=True)) as book:
        torch_trains(book)


@needs_torch
@pytest.mark.extensive
def test_torch_joins_no_hosts_that_others_log_in_to_unasked(hosts, notebook):
    with notebook(hosts(2)) as book:
        said = book.cell("1", "framework=torch").traceback
    assert "other people may log in to this machine (bob)" in said
    assert (
        "add trust_local_users (for all pools of a notebook: %sky config trust_local_users=yes)"
        in said
    )
    assert "in check_people" not in said


def torch_trains(book):
    count = len(book.town)
    book.options += " framework=torch trust_local_users"
    found = book.values(f"{DDP}[total, weights]", timeout=90)
    assert [each[0] for each in found] == [count * (count + 1) / 2] * count
    assert len({each[1] for each in found}) == 1


@pytest.mark.extensive
def test_a_rank_on_a_host_is_debugged_at_a_breakpoint_and_after_an_error(hosts, notebook):
    with notebook(hosts(2)) as book:
        client = book.kernel.client

        def typed(code, *lines):
            message = book.kernel.begin(code)
            for line in lines:
                client.get_stdin_msg(timeout=120)
                client.input(line)
            return book.kernel.finish(message, 60)

        ran = typed(
            book.code("import os\nx = 20\nif os.environ['RANK'] == '1': breakpoint()\nx += 1\nx"),
            "p x + 2", "x = 30", "c",
        )  # fmt: skip
        assert "22" in ran.stdout.splitlines()
        assert ran.result == "[0] 21\n[1] 31"
        assert book.cell("y = 5\n1 / 0").status == "error"
        assert "5" in typed("%sky debug rank=1", "p y", "q").stdout.splitlines()


@pytest.mark.extensive
def test_limits_of_ranks_hold_on_hosts(hosts, notebook):
    with notebook(hosts(2)) as book:
        book.options += " memory_limit=300MB cpu_limit=1"
        assert book.values("len(os.sched_getaffinity(0))") == [1, 1]
        ran = book.cell("x = bytearray(1_000_000_000)")
        assert ran.status == "error"
        assert "ranks 0-1 reached memory_limit=300MB" in ran.traceback
        assert book.values("os.getuid()") == [4001] * 2


@needs_jax
@pytest.mark.extensive
def test_jax_computes_across_hosts(hosts, notebook):
    town = hosts(2)
    with notebook(town) as book:
        book.options += " framework=jax trust_local_users env=JAX_NUM_CPU_DEVICES=2"
        body = (
            "import jax, jax.numpy as jnp\n"
            "from jax.experimental import multihost_utils\n"
            "mine = jnp.array([jax.process_index() + 1.0])\n"
            "[jax.device_count(), multihost_utils.process_allgather(mine).ravel().tolist()]"
        )
        assert book.values(body, timeout=90) == [[4, [1.0, 2.0]]] * 2


@pytest.mark.extensive
def test_check_names_the_pair_that_cannot_talk(book):
    two = book.town[1:3]
    for how in ("add", "delete"):
        for one, other in (two, two[::-1]):
            one.run(f"ip route {how} blackhole {other.address}/32")
            one.run(f"ip -6 route {how} blackhole {other.address6}/128")
        if how == "add":
            said = book.here("%sky check", timeout=120)
    found = set(re.findall(r"rank (\d) \S+ does not reach rank (\d)", said))
    assert found == {("1", "2"), ("2", "1")}, said
