"""`%sky torchrun` and `sky.run`: on the notebook's own pool, whose ranks and names stay."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest
from kernels import ready
from later import needs
from tiers import few

# Workers do not import torch, which takes a second each: what the agent does is the same.
WORKER = """\
import json, os, signal, sys, time
from pathlib import Path
rank = os.environ['RANK']
snapshots = [Path(f'snapshot-{each}') for each in range(4)]
own = snapshots[int(rank)]
def reached(path):
    return int(path.read_text()) if path.exists() else 0
for epoch in range(reached(own), 3):
    print('epoch', epoch, 'worker', rank, 'of', os.environ['WORLD_SIZE'], sys.argv, flush=True)
    own.with_suffix('.new').write_text(str(epoch + 1))
    own.with_suffix('.new').replace(own)  # a worker may be stopped between any two lines
    # The first attempt ends here: a node that restarts because another one does counts no attempt.
    while epoch == 1 and '--killed' in sys.argv:
        if rank == '2' and all(reached(each) == 2 for each in snapshots):
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.05)
"""
FAILS = """\
import json, os, sys, time
import skyward_nb as sky
if sky.rank() == 1:
    error = {'message': 'ValueError: boom', 'extraInfo': {'py_callstack': 'of main', 'timestamp': '1'}}
    open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w').write(json.dumps({'message': error}))
    sys.exit(3)
time.sleep(60)
"""
LOGS = """\
import os, signal, sys, time
from pathlib import Path
rank, attempt = os.environ['RANK'], os.environ['TORCHELASTIC_RESTART_COUNT']
words = [os.environ[name] for name in ('ROLE_NAME', 'ROLE_RANK', 'ROLE_WORLD_SIZE', 'TORCHELASTIC_MAX_RESTARTS')]
sys.stdout.write(' '.join(['worker', rank, 'attempt', attempt, *words]) + '\\n')  # at once: --tee reads what is there
sys.stderr.write(f'error of {rank}\\n')
Path(f'logs/said-{attempt}-{rank}').touch()
while attempt == '0':
    time.sleep(0.02)
    if rank == '1' and Path('logs/said-0-0').exists():
        sys.exit(3)
"""
OPTIONS = {
    "static": "--nnodes=1 --node-rank=0 --master-addr=localhost --redirects=1:3 --tee=0:3",
    "standalone": "--standalone -r 3 -t 1:3 --local-ranks-filter=0",
}
"""Two ways to say it, with what both have."""
BOTH = (
    "--nproc-per-node=2 --max-restarts=1 --role=trainer --log-dir=logs --start-method=spawn logs.py"
)

pytestmark = [pytest.mark.torch, needs("torch")]


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    (folder / "main.py").write_text(WORKER)
    (folder / "fails.py").write_text(FAILS)
    (folder / "logs.py").write_text(LOGS)
    (folder / "hello.py").write_text(
        "import sys\nprint(__name__, sys.argv[1:])\nif 'x' in sys.argv: 1 / 0\n"
    )
    with ready(f"import os; os.chdir({str(folder)!r})\n%load_ext skyward_nb") as running:
        running.folder = folder
        ran = running.run(
            "%%sky_remote nodes=2 framework=none\nimport os\nkept, before = 'a name', {**os.environ}"
        )
        assert ran.status == "ok", ran.traceback
        yield running


@pytest.fixture(autouse=True)
def none_is_left(notebook):
    yield
    for each in notebook.folder.glob("snapshot-*"):
        each.unlink()
    same = (
        "import psutil\nkept, {**os.environ} == before, psutil.Process().children(recursive=True)"
    )
    assert notebook.run(f"%%sky_remote\n{same}").result == "[0-1] ('a name', True, [])"


@pytest.mark.parametrize("how", few(1, ["", "--rdzv-backend=c10d"]))
def test_a_worker_that_is_killed_goes_on_from_its_snapshot(notebook, how):
    ran = notebook.run(
        f"%sky torchrun --nnodes=2 --nproc-per-node=2 --max-restarts=1 {how} main.py --killed"
        if how
        else "%sky torchrun --nnodes 2 --nproc_per_node 2 main.py --epochs 3"
    )
    assert ran.status == "ok", ran.traceback
    for rank in range(4):
        node = rank // 2
        for epoch in range(3):
            line = f"[{node}] epoch {epoch} worker {rank} of 4 ['main.py', "
            assert ran.picture.count(line) == 1, ran.picture


def test_what_a_worker_raised_is_one_error(notebook):
    ran = notebook.run("%sky torchrun --nproc-per-node=2 fails.py")
    assert ran.status == "error"
    assert (
        "WorkersFailed" in ran.traceback and "worker 1: ValueError: boom\nof main" in ran.traceback
    )
    assert "elastic_agent" not in ran.traceback
    assert "WorkersFailed on rank 0 of 2: worker 1: ValueError: boom" in ran.picture


def logs_of(folder):
    """The files below `--log-dir`, by their paths in the folder of the one run; the files of workers go."""
    logs = folder / "logs"
    found = {
        str(path.relative_to(logs)).partition("/")[2]: path.read_text()
        for path in logs.rglob("*.log")
    }
    shutil.rmtree(logs)
    return found


def shown(text):
    """The lines of workers on a console, without the rank that a picture has before them."""
    lines = (line.removeprefix("[0] ") for line in text.splitlines())
    return sorted(
        line for line in lines if "worker" in line.split(":")[-1][:6] or "error of" in line
    )


def logs_of_ours(notebook, how):
    (notebook.folder / "logs").mkdir()
    ran = notebook.run(f"%sky torchrun {OPTIONS[how]} {BOTH}")
    assert ran.status == "ok", f"{ran.traceback}{ran.picture}"
    return shown(ran.picture), logs_of(notebook.folder)


def test_roles_logs_and_restarts(notebook):
    console, logs = logs_of_ours(notebook, "static")
    said = "worker {0} attempt {1} trainer {0} 2 1\n".format
    assert logs == {
        f"attempt_{attempt}/{rank}/{name}.log": text
        for attempt in (0, 1)
        for rank in (0, 1)
        for name, text in (("stdout", said(rank, attempt)), ("stderr", f"error of {rank}\n"))
    }
    tee = [f"[trainer0]:{said(0, attempt).strip()}" for attempt in (0, 1)]
    assert console == ["[trainer0]:error of 0"] * 2 + tee


@pytest.mark.extensive
@pytest.mark.parametrize("how", OPTIONS)
def test_logs_and_console_are_those_of_torchrun_itself(notebook, how):
    ours = logs_of_ours(notebook, how)
    (notebook.folder / "logs").mkdir()
    words = [sys.executable, "-m", "torch.distributed.run", *OPTIONS[how].split(), *BOTH.split()]
    ran = subprocess.run(words, cwd=notebook.folder, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert ours == (shown(ran.stdout + ran.stderr), logs_of(notebook.folder))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--nnodes=3 main.py", "--nnodes=3, and pool 'default' has 2 nodes"),
        ("--nnodes=2 nosuch.py", "there is no script nosuch.py"),
        ("ranks=0 main.py", "ranks= is not an option of a script, which runs on nodes"),
        ("--no-python ./nosuch", "there is no program nosuch"),
    ],
)
def test_what_cannot_be_run_is_said_before_anything_begins(notebook, line, said):
    ran = notebook.run(f"%sky torchrun {line}")
    assert said in ran.stderr, ran.traceback


def test_python_runs_scripts_as_well(notebook):
    ran = notebook.run("import skyward_nb as sky\nsky.run('hello.py', ['a', 3], pool='default')")
    assert ran.result is None and "[0-1] __main__ ['a', '3']" in ran.picture, ran.traceback
    ran = notebook.run(
        "try:\n    sky.run('hello.py', ['x'], pool=sky.get_pool(), ranks='1')\n"
        "except ZeroDivisionError as error:\n    print(error.failures[0].ranks)"
    )
    assert ran.stdout == "(1,)\n", ran.traceback
    ran = notebook.run(
        "job = sky.run('hello', module=True, detach=True, timeout='1m')\njob.wait(), job.status"
    )
    assert ran.result == "(True, 'finished')", ran.traceback
    assert (
        "give a list of words, such as ['a']" in notebook.run("sky.run('hello.py', 'a')").traceback
    )
    assert "there is no script nosuch.py" in notebook.run("sky.run('nosuch.py')").traceback


def test_files_of_scripts_that_run_here_are_here(notebook):
    ran = notebook.run("%sky fetch runs/*.pt")
    assert ran.stdout == "pool default runs on this machine: files of scripts are here already\n"
    assert "name files: %sky fetch runs/*.pt" in notebook.run("%sky fetch").stderr
    assert "there is no pool 'other'" in notebook.run("%sky fetch runs pool=other").traceback


def test_where_other_people_may_log_in_it_takes_their_connections_only_if_they_are_trusted(
    notebook,
):
    """Its stores let anybody in, and pickles are read from them: on one machine, too."""
    eve = "import skyward_nb.system.other_accounts as a\na.other_people = lambda: ['eve']"
    try:
        notebook.run(f"%%sky_remote pool=careful nodes=1 framework=none\n{eve}")
        ran = notebook.run("%sky torchrun pool=careful hello.py")
        assert "other people may log in to this machine (eve)" in ran.traceback
        assert "add trust_local_users" in ran.traceback
        assert "elastic_agent" not in ran.traceback
        notebook.run(f"%%sky_remote pool=trusting nodes=1 framework=none trust_local_users\n{eve}")
        ran = notebook.run("%sky torchrun pool=trusting hello.py")
        assert ran.status == "ok", ran.traceback
        assert "__main__" in ran.picture
    finally:
        notebook.run("%sky down careful\n%sky down trusting")
