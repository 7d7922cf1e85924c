"""What Slurm says of a job, and what it means: why it is refused or waits, and how it ended. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

FORMAT = "%i|%T|%P|%V|%S|%e|%L|%N|%r"
"""Of squeue: id, state, partition, times of submission, start and end, time left, nodes, reason."""

_UNKNOWN_TIME = ("", "N/A", "Unknown", "NONE")

WAITS = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT")
RUNS = ("RUNNING", "SUSPENDED", "RESIZING", "SIGNALING", "STOPPED", "STAGE_OUT")

_ENDS = {
    "CANCELLED": "it was cancelled (by `scancel`: yours, or an administrator's)",
    "COMPLETED": "it has ended",
    "COMPLETING": "it has ended",
    "TIMEOUT": "its time limit was reached: ask for more with ttl=",
    "DEADLINE": "its deadline was reached",
    "PREEMPTED": "it was preempted: a job with a higher priority took its nodes",
    "NODE_FAIL": "one of its nodes failed, or does not answer Slurm",
    "BOOT_FAIL": "its nodes did not boot",
    "OUT_OF_MEMORY": "it used more memory than it had: ask for more with memory=",
    "FAILED": "its batch script failed",
    "REVOKED": "another cluster has it",
}

_REASONS = {
    "None": "Slurm has not looked at it yet",
    "Priority": "jobs with a higher priority are before it",
    "Resources": "it is next, and waits for nodes to become free",
    "BeginTime": "its begin time is not reached",
    "Dependency": "it waits for another job",
    "Licenses": "it waits for a license",
    "Reservation": "its reservation has not begun",
    "Cleaning": "it is cleaned up after an earlier start",
    "Prolog": "its nodes are prepared",
    "QOSGrpCpuLimit": "jobs of this QOS use all CPUs that it allows them",
    "QOSMaxJobsPerUserLimit": "your other jobs are as many as the QOS allows",
}
_ABOUT = (
    (r"ReqNodeNotAvail.*", "nodes that it needs are down, reserved or drained"),
    (r"Nodes required for job are DOWN.*", "nodes that it needs are down, reserved or drained"),
    (r"(QOS|Assoc).*PerUser.*", "your other jobs use what you are allowed"),
    (
        r"(QOS|Assoc)Grp\w*Minutes\w*",
        "the time of your account or QOS is used up, or would be by this job and those that run: try a shorter "
        "ttl=, or another account=",
    ),
    (r"(QOS|Assoc).*(Grp|Group).*", "jobs of your account or QOS use what those are allowed"),
    (r"(QOS|Assoc)MaxJobsLimit", "your other jobs are as many as you are allowed"),
)

_NEVER = (
    (
        r"PartitionNodeLimit",
        "partition {partition} gives no job {nodes} nodes: ask for fewer with nodes=, or name another partition=",
    ),
    (
        r"PartitionTimeLimit",
        "the time that it asks for is more than partition {partition} gives: a shorter ttl=, or another partition=",
    ),
    (
        r"PartitionDown|PartitionInactive",
        "partition {partition} takes no jobs now: name another with partition= (`sinfo` lists them)",
    ),
    (r"JobHeldUser", "it is held: `scontrol release {job}`, or leave --hold out of extra="),
    (
        r"JobHeldAdmin|job requeued in held state|launch failed requeued held",
        "an administrator or Slurm itself holds it: ask them why (`scontrol show job {job}`)",
    ),
    (
        r"BadConstraints",
        "no node has what it asks for: see constraint= and accelerator= or gres= (`sinfo -o '%N %f %G'`)",
    ),
    (
        r"(QOS|Assoc)MaxWall.*",
        "the time that it asks for is more than your QOS or account allows: a shorter ttl=, or another qos=",
    ),
    (
        r"(QOS|Assoc)\w*PerJob\w*",
        "it asks for more than your QOS or account allows one job: fewer nodes=, or another qos=",
    ),
    (r"InvalidAccount|AccountNotAllowed", "this account may not run there: name another account="),
    (r"InvalidQOS|QOSNotAllowed", "this QOS may not be used there: name another qos="),
    (
        r"ReservationDeleted|InvalidReservation",
        "its reservation is gone: name another reservation=",
    ),
    (r"DependencyNeverSatisfied", "the job that it waits for failed: see extra="),
)


_ADVICE = (
    (
        "accounting/QOS policy",
        "your account or QOS allows no more jobs, or no job of this size, now: fewer nodes=, a shorter ttl=, another "
        "account= or qos= (`sacctmgr show assoc user=$USER format=Account,QOS,MaxJobs,MaxSubmit`)",
    ),
    ("nvalid partition", "`sinfo` lists partitions: partition=NAME"),
    ("nvalid account", "`sacctmgr show assoc user=$USER` lists yours: account=NAME"),
    ("nvalid qos", "`sacctmgr show assoc user=$USER format=QOS` lists yours: qos=NAME"),
    ("nvalid feature", "`sinfo -o '%N %f'` lists features: constraint=NAME"),
    (
        "generic resource",
        "`sinfo -o '%N %G'` lists devices: gres=gpu:TYPE:N, or accelerator=TYPE:N",
    ),
    (
        "node configuration is not available",
        "no node has that much: `sinfo -o '%N %c %m %G'` lists them",
    ),
    ("CPU count", "no node has that many CPUs: `sinfo -o '%N %c'` lists them"),
    ("emory specification", "no node has that much memory: `sinfo -o '%N %m'` lists it"),
    ("time limit", "ask for less time with ttl=, or for other nodes with partition="),
    ("eservation", "`scontrol show reservation` lists them: reservation=NAME"),
)


@dataclass(frozen=True)
class JobState:
    """What squeue says of a job; times are Slurm's texts, "" where it has none; `nodes` is its hostlist."""

    job: str
    state: str
    partition: str
    submitted: str
    starts: str
    ends: str
    left: float | None
    """Seconds until its time limit; None where it has none, or none is said."""
    nodes: str
    reason: str

    @property
    def waits(self) -> bool:
        """Whether it has no nodes yet."""
        return self.state in WAITS

    @property
    def runs(self) -> bool:
        """Whether it has its nodes."""
        return self.state in RUNS


def read_states(out: str) -> list[JobState]:
    """The jobs in an answer of `squeue -h -o FORMAT`."""
    found: list[JobState] = []
    for line in out.splitlines():
        parts = [part.strip() for part in line.split("|", 8)]
        if len(parts) == 9:
            job, state, partition, *times, left, nodes, reason = parts
            submitted, starts, ends = ("" if time in _UNKNOWN_TIME else time for time in times)
            time_left = seconds_left(left)
            found.append(
                JobState(job, state, partition, submitted, starts, ends, time_left, nodes, reason)
            )
    return found


def why_never(job: JobState, nodes: int) -> str:
    """Why a job that waits will never start, and what to change; "" if it may."""
    for form, words in _NEVER:
        if re.fullmatch(form, job.reason):
            return words.format(partition=job.partition, nodes=nodes, job=job.job)
    return ""


def spell_refused(words: str) -> str:
    """Why Slurm refused a job, in its words, and what to type next."""
    lines = [line.removeprefix("sbatch: error: ") for line in words.splitlines()]
    said = "; ".join(line.removeprefix("Batch job submission failed: ") for line in lines)
    advice = next((advice for form, advice in _ADVICE if form in said), "")
    return (
        f"{said}. {advice[0].upper() if advice[:1].isalpha() else advice[:1]}{advice[1:]}".strip()
    )


def spell_waiting(job: JobState, others: int | None = None, today: str = "") -> str:
    """Where a job stands, in words: the state of a pool that waits for it."""
    if job.state == "CONFIGURING":
        return f"job {job.job}: its nodes boot"
    why = _REASONS.get(job.reason, "")
    for form, words in _ABOUT:
        why = why or (words if re.fullmatch(form, job.reason) else "")
    text = f"job {job.job} waits in the queue of {job.partition}: {why or job.reason}"
    if why and job.reason not in ("", "None"):
        text += f" ({job.reason})"
    if job.submitted:
        text += f"; since {_clock(job.submitted, today)}"
    if job.starts:
        text += f"; Slurm expects it to start about {_clock(job.starts, today)}"
    if others:
        text += f"; {others} other job{'s' * (others != 1)} wait{'s' * (others == 1)} there"
    return text


def spell_end(job: JobState | None) -> str:
    """How a job ended, in words; "" if it has not. None: Slurm does not know it any more."""
    if job is None:
        return "Slurm's queue has its job no more"
    if job.waits or job.runs:
        return ""
    return f"job {job.job}: {_ENDS.get(job.state, f'Slurm calls it {job.state}')}"


def spell_again(job: JobState, started: str) -> str:
    """That a job which had nodes since `started` waits or runs anew, in words; "" if it has kept them."""
    taken = f"job {job.job}: its nodes were taken back (it was preempted or requeued), and it "
    if job.waits:
        return f"{taken}waits in the queue again"
    if job.runs and started and job.starts not in ("", started):
        return f"{taken}has begun anew"
    return ""


def name_left(job: JobState) -> str:
    """A job that has not left the queue although it was cancelled: `job 12 (COMPLETING on c2)`."""
    return f"job {job.job} ({job.state}{f' on {job.nodes}' * bool(job.nodes)})"


def spell_left(job: JobState, seconds: float) -> str:
    """What keeps a job in the queue `seconds` after it was cancelled, in words, and what to type.

    Of one that is COMPLETING, Slurm names the nodes that it still waits for.
    """
    late = f"{name_left(job)} is still in the queue {seconds:.0f} s after it was cancelled: "
    if job.state != "COMPLETING":
        return f"{late}`scancel {job.job}` cancels it again, and so does the next pool, or `%sky sweep`."
    return (
        f"{late}Slurm waits there for processes, or for its own epilog, to end, and the nodes are not given to others before. "
        f"`squeue -j {job.job}` lists it until then; if it stays, your site's administrators can help "
        f"(`scontrol show node {job.nodes}` has the reason)."
    )


def seconds_left(text: str) -> float | None:
    """`1-02:03:04` as squeue's `%L` says it; None where there is no limit, or none is said."""
    days, _, clock = text.strip().rpartition("-")
    parts = clock.split(":")
    if not all(each.isdecimal() for each in (*parts, days or "0")):
        return None
    seconds = 0
    for each in parts:
        seconds = 60 * seconds + int(each)
    return float(86400 * int(days or 0) + seconds)


def _clock(time: str, today: str) -> str:
    """`14:05` of `2026-11-25T14:05:31`, with its day unless that is `today`."""
    day, _, clock = time.partition("T")
    if not clock:
        return time
    return clock[:5] if day == today else f"{day} {clock[:5]}"
