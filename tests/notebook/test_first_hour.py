"""What a person types in the first hour, and what is shown: words of other tools, names of pools, Tab."""

import re

import pytest
from kernels import ready

from skyward_nb.picture.record import MIME


@pytest.fixture(scope="module")
def notebook():
    with ready(JPY_SESSION_NAME="work/class.ipynb") as running:
        ran = running.run(
            "%%sky_remote -n 2\nimport skyward_nb as sky\nmade = 3\nsky.rank(), sky.world_size(), sky.device()"
        )
        assert ran.result == "[0] (0, 2, 'cpu')\n[1] (1, 2, 'cpu')", ran
        yield running


def completed(notebook, text: str) -> list[str]:
    message = notebook.client.complete(text)
    while True:
        reply = notebook.client.get_shell_msg(timeout=60)
        if reply["parent_header"].get("msg_id") == message:
            return reply["content"]["matches"]


def test_lists_of_pools_by_the_words_of_others(notebook):
    for word in ("status", "ls", "ps", "list", "pools", "status default"):
        assert notebook.run(f"%sky {word}").stdout.startswith("default: 2 ranks (local) · up ")
    for word in ("stop", "kill"):
        assert "%sky down takes a pool down" in notebook.run(f"%sky {word}").stderr


def test_help_in_every_way_it_is_asked_for(notebook):
    whole = notebook.run("%sky help").stdout
    assert notebook.run("%sky --help").stdout == whole
    for cell in ("--help", "-h", "--help\n", "nodes=2 --help\nraise ValueError"):
        assert notebook.run(f"%%sky_remote {cell}").stdout == whole
    assert "the cell body is empty" in notebook.run("%%sky_remote nodes=2").stderr
    assert notebook.run("%sky down --help").stdout == notebook.run("%sky help down").stdout
    for name in ("%sky", "%%sky_remote"):
        message = notebook.client.inspect(name, len(name))
        while (got := notebook.client.get_shell_msg(timeout=60))["parent_header"][
            "msg_id"
        ] != message:
            """An answer to something else."""
        assert "nodes=N" in got["content"]["data"]["text/plain"]


def test_to_attach_what_is_up_here_says_so(notebook):
    for line in ("%sky attach", "%sky attach default"):
        ran = notebook.run(line)
        assert ran.error is None
        assert "pool 'default' is up in this notebook: 2 ranks (local)" in ran.stdout
    assert "no pool 'other' is alive" in notebook.run("%sky attach other").traceback


def test_names_of_pools_stand_alone(notebook):
    assert "made" in notebook.run("%sky vars default").stdout
    assert "there is no pool 'nope'" in notebook.run("%sky down nope").traceback
    assert "did you mean hang?" in notebook.run("%sky check hagn").stderr
    assert notebook.run("%%sky_remote pool=second\n1").status == "ok"
    assert "is ready after" in notebook.run("%sky restart second").picture
    assert notebook.run("%sky down second").stdout.startswith("pool second is down")


def test_values_come_before_pythons_own_names_and_pools_by_name(notebook):
    assert completed(notebook, "%%sky_remote nodes=") == ["1", "2", "4", "8"]
    assert completed(notebook, "%%sky_remote framework=t") == ["torch", "tensorflow"]
    assert "default" in completed(notebook, "%%sky_remote pool=")
    assert completed(notebook, "%sky down de") == ["default"]
    assert "exit" not in completed(notebook, "%%sky_remote out=")
    assert completed(notebook, "%%sky_remote zork") == ["zork"]


NAMED = ">open<"
"""In the table of names; the page has folds that are open."""


def test_ipythons_own_open_is_not_sent_and_the_users_is(notebook):
    code = "import os\nopen(os.devnull).read()"
    ran = notebook.run(f"%%sky_remote ranks=0\n{code}")
    assert ran.result == "[0] ''"
    assert NAMED not in ran.html
    notebook.run("def open(name): return 'mine'")
    ran = notebook.run("%%sky_remote ranks=0\nopen('x')")
    assert ran.result == "[0] 'mine'"
    assert NAMED in ran.html
    notebook.run("del open")


def test_a_list_that_ranks_changed_in_place_is_told_once_where_the_notebook_reads_its_own(notebook):
    notebook.run("lst, d = [1], {}")
    assert notebook.run("%%sky_remote\nif sky.rank():\n    lst.append(2)\nlen(d)").status == "ok"
    assert notebook.run("print(len(d))").stdout == "0\n"
    said, value = notebook.run("print(lst)").stdout.splitlines()
    assert said.startswith("lst: rank 1 changed its copy in place") and "%sky pull lst" in said
    assert value == "[1]"
    assert notebook.run("print(lst)").stdout == "[1]\n"
    notebook.run("%%sky_remote\nlst.append(3)")
    notebook.run("lst = [4]")
    assert notebook.run("print(lst)").stdout == "[4]\n", "another one"
    notebook.run("%%sky_remote\nlst.append(5)")
    notebook.run("%sky pull lst")
    assert notebook.run("print(lst[0])").stdout == "[4, 5]\n", "theirs is here"
    for reads in ("%%time\nprint(lst)", "%sky status\nprint(lst)"):
        notebook.run("lst = [6]")
        assert notebook.run("%%sky_remote\nlst.append(7)\nlen(d)").status == "ok"
        for not_yet in ("%sky pull d\nprint(lst)", "%%time\n%%sky_remote\nlen(lst)"):
            assert "in place" not in notebook.run(not_yet).stdout
        assert "lst: ranks 0-1 changed their copy in place" in notebook.run(reads).stdout
    notebook.run("%%sky_remote\ndel lst, d")
    notebook.run("del lst, d")


def test_simulate_as_the_setting_of_a_workshop_breaks_no_pool_without_an_accelerator(notebook):
    body = "import skyward_nb as sky\nsky.world_size(), sky.instance_info().accelerators"
    notebook.run("%env SKYWARD_SIMULATE=1")
    ran = notebook.run(f"%%sky_remote pool=plain\n{body}")
    assert ran.result == "[0] (1, 0)", ran
    assert "simulate" not in ran.picture
    dry = notebook.run("%%sky_remote pool=asked accelerator=A100:2 dry_run\n1")
    assert "A100:2 simulated on CPU" in dry.picture
    ran = notebook.run(f"%%sky_remote pool=asked accelerator=A100:2\n{body}")
    again = notebook.run("%%sky_remote pool=asked\n1")
    assert all("A100:2 simulated on CPU" in each.picture for each in (ran, again)), again
    notebook.run("%env SKYWARD_SIMULATE=")
    assert all(notebook.run(f"%sky down {name}").status == "ok" for name in ("plain", "asked"))


@pytest.mark.parametrize("code", ["%%sky_remote {}\n1", "%sky up {}"])
def test_why_a_pool_does_not_start_is_said_once(notebook, code):
    ran = notebook.run(code.format("pool=tiny memory_limit=5MB"))
    assert ran.error[0] == "StartError"
    assert ran.traceback.count("memory_limit=5MB is too small: a rank holds") == 1
    if ran.html:  # it is drawn after 0.2 s
        assert "StartError" in ran.html
    assert "is too small" not in ran.html


def test_pip_runs_once_on_a_machine_each_time_it_is_asked_for(notebook):
    ran = notebook.run("%%sky_remote\n%pip --version")
    assert len(re.findall(r"\[[01]\] pip \d", ran.picture)) == 1, ran.picture
    assert "[0-1] pip" not in ran.picture
    assert "restart" not in ran.picture
    ran = notebook.run("%%sky_remote\n%pip install --help")
    assert ran.picture.count("`%sky restart` gives ranks that import packages anew") == 1
    assert "restart the kernel" not in ran.picture
    ran = notebook.run(
        "%%sky_remote\nif sky.rank(): get_ipython().run_line_magic('pip', '--version')"
    )
    assert "[1] pip " in ran.picture, "another run"


def test_replace_makes_the_pool_anew_in_one_step_and_says_what_is_lost(notebook):
    ran = notebook.run("%%sky_remote nodes=1\n1")
    assert "With `replace` on the line it is taken down" in ran.traceback
    dry = notebook.run("%%sky_remote nodes=1 replace dry_run\n1")
    assert "1 rank (local), in the place of 2 ranks (local)" in dry.picture
    ran = notebook.run("%%sky_remote nodes=1 replace\n'made' in globals()")
    assert ran.result == "[0] False"
    assert "pool default (2 ranks (local)) was taken down for this one" in ran.picture
    assert "gone with its ranks: made, and what cells imported there" in ran.picture
    again = notebook.run("%%sky_remote nodes=1 replace\n1")
    assert "taken down" not in again.picture, "it fits"
    up = notebook.run("%sky up nodes=2 replace")
    assert "1 rank (local)) was taken down" in up.picture


def test_replace_leaves_a_pool_alone_that_runs_something(notebook):
    notebook.run("%%sky_remote pool=busy detach out=handle\nimport time; time.sleep(60)")
    ran = notebook.run("%%sky_remote pool=busy nodes=2 replace\n1")
    assert "runs a cell in the background" in ran.traceback
    notebook.run("handle.cancel(); handle.wait()")
    assert notebook.run("%sky down busy").status == "ok"


def test_a_pool_of_the_same_name_elsewhere_is_told(notebook):
    assert notebook.run("%%sky_remote pool=shared\nvalue = 7").status == "ok"
    with ready(JPY_SESSION_NAME="work/other.ipynb") as other:
        ran = other.run("%%sky_remote pool=shared\nvalue")
        assert ran.error[0] == "NameError"
        note = "another pool 'shared' is alive, in use by the kernel of work/class.ipynb"
        assert note in ran.picture
        assert "names this one otherwise" in ran.picture
        assert other.run("%%sky_remote pool=shared\n1").displays[-1][MIME]
        assert "another pool" not in other.run("%%sky_remote pool=shared\n1").picture, "told once"
    assert notebook.run("%sky down shared").status == "ok"
