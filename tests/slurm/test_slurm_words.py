"""What Slurm is asked for, and what its answers mean: pure."""

import os
import subprocess

import pytest
from options.lines import spec

import skyward_nb as sky
from skyward_nb.options.arguments import spec_for
from skyward_nb.options.defaults import Default, with_defaults
from skyward_nb.options.option_line import parse
from skyward_nb.options.specs import check_fits
from skyward_nb.providers.far.keeper import KEEPER
from skyward_nb.providers.maker_process import MakerProcess
from skyward_nb.providers.slurm import login_node
from skyward_nb.providers.slurm.allocation import Allocation
from skyward_nb.providers.slurm.batch_script import (
    arguments,
    batch_script,
    contained,
    dry_run_lines,
    step_arguments,
    step_script,
)
from skyward_nb.providers.slurm.job_records import JobRecord
from skyward_nb.providers.slurm.job_states import (
    JobState,
    read_states,
    seconds_left,
    spell_again,
    spell_end,
    spell_waiting,
    why_never,
)
from skyward_nb.providers.slurm.login_node import over_login, through_login
from skyward_nb.reports.cost_approval import dry_lines
from skyward_nb.words.errors import OptionError, PoolError
from skyward_nb.words.provider_access import SlurmAccess


def job(state="PENDING", reason="None", **fields):
    whole = {
        "partition": "gpu",
        "submitted": "",
        "starts": "",
        "ends": "",
        "left": None,
        "nodes": "",
        **fields,
    }
    return JobState(job="12", state=state, reason=reason, **whole)


# ── options ─────────────────────────────────────────────────────────────────────────────


def test_only_what_is_asked_for_is_asked_of_slurm():
    plain = arguments(spec("provider=slurm"), "p-1")
    assert plain == [
        "--parsable", "--no-requeue", "--chdir=/", "--export=NONE", "--job-name=skyward-p-1", "--nodes=1",
        "--ntasks-per-node=1", "--signal=B:USR2@120",
    ]  # fmt: skip
    line = (
        "provider=slurm nodes=4 accelerator=A100:8 partition=gpu account=lab qos=high ttl=2h cpus=16 "
        "memory=64 constraint=a100&nvme reservation=class exclusive extra='--nice=10 --mail-type=END'"
    )
    asked = arguments(spec(line), "p-1")[len(plain) :]
    assert [*asked, *arguments(spec(line), "p-1")[5:6]] == [
        "--partition=gpu", "--account=lab", "--qos=high", "--constraint=a100&nvme", "--reservation=class",
        "--gpus-per-node=a100:8", "--cpus-per-task=16", "--mem=65536M", "--time=120:00", "--exclusive",
        "--nice=10", "--mail-type=END", "--nodes=4",
    ]  # fmt: skip
    # GPUs in Slurm's own words are not asked for twice, and simulated ones not at all.
    for other in ("accelerator=A100:2 gres=gpu:2", "accelerator=A100:2 simulate"):
        found = arguments(spec(f"provider=slurm {other}"), "p-1")
        assert not [each for each in found if each.startswith("--gpus")]


@pytest.mark.parametrize(
    ("line", "accelerator"),
    [
        ("gres=gpu:a100:4", "A100:4"),
        ("gres=gpu:v100", "V100"),
        ("gres=nic:1,gpu:tesla_t4:2", "T4:2"),
        ("gres=gpu:4", "None"),  # which ones is not said
        ("gres=gpu:ampere:4", "None"),
        ("gres=gpu:ampere:4 accelerator=A100:4", "A100:4"),
        ("gres=gpu:a100:4 accelerator=none", "None"),
        ("gres=gpu:a100_3g.20gb:2", "None"),
        ("gres=gpu:a100_3g.20gb:2 accelerator=A100 mig=3g.20gb", "A100"),
    ],
)
def test_devices_that_slurm_is_asked_for_are_what_ranks_use(line, accelerator):
    found = spec(f"provider=slurm {line}")
    assert str(found.accelerator) == accelerator
    assert not [each for each in arguments(found, "p-1") if each.startswith("--gpus")]


def test_sky_slurm_says_the_same_as_the_line():
    line = spec(
        "provider=slurm partition=gpu extra='--nice=10 --hold' module=cuda/12.4,python exclusive"
    )
    source = sky.Slurm(
        partition="gpu",
        extra=["--nice=10", "--hold"],
        modules=["cuda/12.4", "python"],
        exclusive=True,
    )
    assert spec_for("default", provider=source).slurm == line.slurm
    assert spec("provider=slurm").idle == 1800
    assert spec_for("default", provider=sky.Slurm(job=12)).slurm.job == "12"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("account=lab", "account= is about Slurm: it goes with provider=slurm"),
        ("partition=gpu", "partition= is about Slurm"),
        ("provider=slurm job=mine", "job=current, or the id of your job"),
        ("provider=slurm job=current partition=gpu", "job=current is there: leave out one"),
        ("provider=slurm job=12 memory=64", "memory= is about a job to submit, and job=12 has what it was given"),
        ("provider=slurm login=me@c job=current", "login= is elsewhere: give its id"),
        ("provider=slurm login=-oProxyCommand=x", "is not a name that Slurm takes"),
        ("provider=slurm extra=nice", "'nice' is not an argument: write --name=value"),
        ("provider=slurm account='a b'", "'a b' is not a name that Slurm takes"),
        ("provider=slurm region=us-east-1", "region= is about machines that are rented"),
        ("provider=slurm accelerator=A100 mig=3g.20gb", "each site has names of its own for slices: gres=gpu:TYPE:N"),
        ("provider=slurm job=12 on_preempt=replace", "about a job of the pool's own, and job=12 is not"),
        ("container=x", "container= is about Slurm"),
        ("provider=slurm hosts=a", "provider=slurm knows no hosts="),
    ],
)  # fmt: skip
def test_what_is_refused(line, says):
    with pytest.raises(OptionError) as raised:
        spec(line)
    assert says in str(raised.value)


def test_partition_alone_still_cuts_gpus():
    assert spec("accelerator=A100 mig=3g.40gb partition simulate").partition is True
    assert spec("provider=slurm partition=gpu").partition is False


def test_defaults_about_slurm_are_for_its_pools_alone():
    known = [
        Default("account", "lab", "here"),
        Default("partition", "gpu", "here"),
        Default("cpus", "4", "here"),
    ]
    there = with_defaults(parse("provider=slurm", scopes=("pool",)), known).pool
    assert (there.account, there.partition, there.cpus.amount) == ("lab", "gpu", 4)
    assert with_defaults(parse("nodes=2", scopes=("pool",)), known).pool.stated == ("nodes",)


def test_a_pool_that_is_up_has_the_options_that_it_was_made_with():
    up = spec("provider=slurm partition=gpu account=lab")
    check_fits(up, parse("provider=slurm partition=gpu", scopes=("pool",)).pool)
    with pytest.raises(
        PoolError, match="is up with partition=gpu, and partition=cpu was asked for"
    ):
        check_fits(up, parse("provider=slurm partition=cpu", scopes=("pool",)).pool)


def test_a_command_for_the_login_node_is_one_of_ssh(monkeypatch, tmp_path):
    monkeypatch.setattr(login_node, "_TMP", tmp_path)
    assert over_login(None, ["squeue", "a b"]) == ["squeue", "a b"]
    words = over_login("me@login", ["squeue", "a b"])
    assert (words[0], words[-3:]) == ("ssh", ["--", "me@login", "squeue 'a b'"])
    assert "BatchMode=yes" in words
    assert through_login("me@login", ("10.0.0.1", 22))[:3] == ["ssh", "-W", "10.0.0.1:22"]
    assert through_login("me@login", ("fd00::1", 22))[2] == "[fd00::1]:22"
    (folder,) = tmp_path.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o755)
    with pytest.raises(OptionError, match="is not a folder of yours alone"):
        over_login("me@login", ["squeue"])
    folder.chmod(0o700)
    another = os.getuid() + 1
    folder.rename(folder.with_name(f".skyward-ssh-{another}"))
    monkeypatch.setattr("os.getuid", lambda: another)
    with pytest.raises(OptionError, match="is not a folder of yours alone"):
        over_login("me@login", ["squeue"])


# ── the script ──────────────────────────────────────────────────────────────────────────


def test_the_script_loads_modules_runs_lines_and_starts_keepers():
    source = sky.Slurm(modules=["cuda/12.4"], before=["ulimit -n 4096"])
    script = batch_script(spec_for("default", provider=source), "p-1")
    lines = script.splitlines()
    assert lines[0] == "#!/bin/bash -l"
    assert lines[2:5] == ["trap '' USR2", "module load cuda/12.4 || exit", "ulimit -n 4096"]
    assert KEEPER.replace("'", "'\"'\"'") in script
    assert "/tmp/.skyward-p-1.$SLURM_JOB_ID.$SLURMD_NODENAME" in script
    assert batch_script(spec("provider=slurm"), "p-1").startswith("#!/bin/sh\n")


def test_a_job_that_may_be_requeued_may_be_until_it_begins():
    begin = batch_script(spec("provider=slurm extra=--requeue"), "p-1").splitlines()[2:5]
    assert begin[1] == 'scontrol update JobId="$SLURM_JOB_ID" Requeue=0'
    assert "scontrol" not in batch_script(spec("provider=slurm"), "p-1")


def test_a_step_has_as_many_cpus_as_were_asked_for():
    assert "--cpus-per-task=6" in batch_script(spec("provider=slurm cpus=6"), "p-1")
    assert "--cpus-per-task" not in batch_script(spec("provider=slurm"), "p-1")


def test_a_container_is_run_by_what_the_site_has():
    asked = spec("provider=slurm container=nvcr.io#nvidia/pytorch:25.10-py3")
    options, begin = contained(asked.slurm, "p-1", "pyxis")
    assert options[0] == "--container-image=nvcr.io#nvidia/pytorch:25.10-py3"
    assert not begin
    words = step_arguments(asked, "p-1", "pyxis")
    assert words.index(options[0]) < words.index("/bin/sh")
    # The keeper makes the container, others enter it, and the job removes it, also where it is cancelled.
    entered, begin = contained(asked.slurm, "p-1", "pyxis", "/tmp/keep")
    assert (entered[0], begin) == ("--container-name=skyward-p-1", [])
    assert not any("image" in each for each in entered)
    last = batch_script(asked, "p-1", "pyxis").splitlines()[-2:]
    assert "enroot remove --force pyxis_skyward-p-1" in last[0]
    assert last[1] == "exit $code"
    assert "trap gone TERM" in batch_script(asked, "p-1", "pyxis")
    there = step_script(asked, "p-1", "12", ["c1"], "pyxis")
    assert "enroot remove --force pyxis_skyward-p-1" in there
    assert "enroot" not in batch_script(asked, "p-1", "apptainer")
    options, begin = contained(asked.slurm, "p-1", "apptainer")
    assert not options
    assert begin[-2:] == [asked.slurm.container, ""]
    # The shell of a login node may be csh or fish.
    assert not {*"\n!'\\"} & {*"".join(begin)}
    said = subprocess.run(
        [*begin, "true"], capture_output=True, text=True, env={"PATH": ""}, check=False
    )
    assert said.returncode == 77 and "neither apptainer nor singularity" in said.stderr
    assert contained(spec("provider=slurm").slurm, "p-1", None) == ([], [])
    shown = dry_lines(asked)
    assert any("where it knows that (pyxis), else as here" in line for line in shown)


@pytest.mark.parametrize(
    ("ttl", "notice"), [("10s", 30), ("1m", 30), ("3m", 90), ("4m", 120), ("2h", 120)]
)
def test_half_of_a_short_time_limit_is_the_notice(ttl, notice):
    assert f"--signal=B:USR2@{notice}" in arguments(spec(f"provider=slurm ttl={ttl}"), "p-1")


@pytest.mark.parametrize(
    ("left", "is_current", "said", "is_told"),
    [
        (None, False, "signal:120", False),
        (7200.0, False, "signal:120", False),  # Slurm's signal comes long after the agent is there
        (200.0, False, "signal:100:100", True),
        (230.0, False, "signal:115", True),
        (300.0, False, "signal:120", False),
        (209.0, True, "signal:105:104", True),
        (7200.0, True, "signal:120:7080", False),  # there is no signal
        (None, True, "signal:120", False),
        (20.0, True, "signal:10:10", True),
    ],
)
def test_an_agent_knows_of_the_time_limit_where_the_signal_may_come_before_it(
    tmp_path, monkeypatch, left, is_current, said, is_told
):
    record = JobRecord(
        pool_id="p", maker=MakerProcess.this(), access=SlurmAccess(), is_current=is_current
    )
    made, told = Allocation(record, None), []
    monkeypatch.setattr("time.monotonic", lambda: 100.0)
    made._limited(job("RUNNING", left=left), told.append)
    assert made.notice() == said
    assert bool(told) == is_told


def test_a_dry_run_shows_what_would_be_submitted():
    shown = dry_lines(spec("provider=slurm nodes=2 partition=gpu"))
    assert shown[1].startswith("    sbatch --parsable")
    assert "--nodes=2" in shown[1]
    assert any("srun" in line for line in shown)
    assert len(shown) < 15
    (there,) = dry_run_lines(spec("provider=slurm job=12"))
    assert there == "on the nodes of job 12: nothing is submitted"


# ── its answers ─────────────────────────────────────────────────────────────────────────


def test_answers_of_squeue_are_read():
    out = (
        "12|PENDING|gpu|2026-11-25T14:02:09|N/A|N/A|UNLIMITED||Resources\n"
        "13|PENDING|gpu|N/A|N/A|N/A|9:58||Nodes required for job are DOWN, DRAINED or a|b\n"
        "a line of a login script\n"
    )
    first, second = read_states(out)
    assert (first.submitted, first.starts, first.waits) == ("2026-11-25T14:02:09", "", True)
    assert second.reason.endswith("a|b")
    assert (first.left, second.left) == (None, 598.0)


def test_where_a_job_stands_is_said_in_plain_words():
    waiting = job(reason="Priority", submitted="2026-11-25T14:02:09", starts="2026-11-26T03:30:00")
    assert spell_waiting(waiting, 3, "2026-11-25") == (
        "job 12 waits in the queue of gpu: jobs with a higher priority are before it (Priority); since 14:02; "
        "Slurm expects it to start about 2026-11-26 03:30; 3 other jobs wait there"
    )
    assert "waits for nodes to become free (Resources)" in spell_waiting(job(reason="Resources"))
    assert "your other jobs" in spell_waiting(job(reason="QOSMaxCpuPerUserLimit"))
    for reason in ("AssocGrpCPUMinutesLimit", "QOSGrpBillingRunMinutes", "AssocGrpGRESMinutes"):
        assert "is used up" in spell_waiting(job(reason=reason))
    assert (
        spell_waiting(job(reason="SomethingNew"))
        == "job 12 waits in the queue of gpu: SomethingNew"
    )
    assert spell_waiting(job("CONFIGURING")) == "job 12: its nodes boot"


@pytest.mark.parametrize(
    ("reason", "says"),
    [
        ("PartitionNodeLimit", "partition gpu gives no job 8 nodes: ask for fewer with nodes="),
        ("PartitionTimeLimit", "a shorter ttl="),
        ("PartitionDown", "name another with partition="),
        ("JobHeldUser", "scontrol release 12"),
        ("JobHeldAdmin", "scontrol show job 12"),
        ("BadConstraints", "constraint="),
        ("QOSMaxWallDurationPerJobLimit", "a shorter ttl="),
        ("QOSMaxNodePerJobLimit", "fewer nodes="),
        ("InvalidAccount", "account="),
    ],
)
def test_a_reason_that_never_passes_says_what_to_change(reason, says):
    assert says in why_never(job(reason=reason), 8)


@pytest.mark.parametrize(
    "reason",
    ["None", "Priority", "Resources", "QOSMaxJobsPerUserLimit", "AssocGrpCpuLimit", "Licenses"],
)
def test_a_reason_that_may_pass_is_waited_for(reason):
    assert not why_never(job(reason=reason), 8)


def test_how_a_job_ended_is_said():
    for state in ("PENDING", "RUNNING", "CONFIGURING"):
        assert not spell_end(job(state))
    assert spell_end(job("PREEMPTED")).startswith("job 12: it was preempted")
    assert "ttl=" in spell_end(job("TIMEOUT"))
    assert spell_end(job("NEW_WORD")) == "job 12: Slurm calls it NEW_WORD"
    assert "an administrator's" in spell_end(job("CANCELLED"))
    assert spell_end(None) == "Slurm's queue has its job no more"


def test_a_job_that_lost_its_nodes_and_is_in_the_queue_again_is_no_job_that_runs():
    began = "2026-11-25T14:02:09"
    assert "waits in the queue again" in spell_again(job("PENDING", "BeginTime"), began)
    assert not spell_again(job("RUNNING", starts=began), began)
    assert not spell_again(job("RUNNING"), began)
    assert "has begun anew" in spell_again(job("RUNNING", starts="2026-11-25T15:00:00"), began)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1-02:03:04", 93784.0), ("02:03:04\n", 7384.0), ("9:58", 598.0), ("0:00", 0.0),
        ("UNLIMITED", None), ("INVALID", None), ("", None),
    ],
)  # fmt: skip
def test_how_long_a_job_may_still_run_is_read(text, seconds):
    assert seconds_left(text) == seconds
