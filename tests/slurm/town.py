"""A real Slurm cluster of this machine: munged, slurmctld and two slurmd, all of one folder."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from free_ports import free_ports
from waiting import until

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "squeue", "scancel", "scontrol")
ACCOUNTING = ("slurmdbd", "sacctmgr", "mariadbd")
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
_TABLES = Path("/usr/share/mysql")
_V1 = Path("/sys/fs/cgroup/freezer")


def lacks() -> str:
    """Why no cluster can be started here; "" where it can."""
    missing = [each for each in PROGRAMS if shutil.which(each, path=PATH) is None]
    return f"there is no Slurm here ({', '.join(missing)}): .ci/slurm installs it" * bool(missing)


def lacks_accounting() -> str:
    """Why no cluster can be started here that keeps accounts; "" where it can."""
    missing = [each for each in ACCOUNTING if shutil.which(each, path=PATH) is None]
    why = f"there are no accounts of Slurm's here ({', '.join(missing)}): "
    return lacks() or (why + "apt-get install slurmdbd mariadb-server-core") * bool(missing)


class Town:
    """The cluster, as this user: as root with cgroups, if there are any, and with device files for GPUs.

    Several may be there at once, all with nodes c1 and c2: no job has a number of another cluster's, whose processes would
    be in the same cgroup, and be killed with it.

    Each node has as many `cpus`. With `accounts`, commands of sacctmgr, it has a database of accounts, and enforces what
    they say. Daemons find programs at `path` first. `options` are lines of slurm.conf, in place of those here.
    """

    def __init__(
        self,
        folder: Path,
        *,
        cpus: int = 4,
        accounts: Sequence[str] = (),
        path: str = "",
        **options: object,
    ) -> None:
        self.folder = folder
        self.cpus = cpus
        self.accounts = accounts
        self.options = options
        self.is_root = os.getuid() == 0
        self.uses_cgroups = self.is_root and _V1.exists()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        for name in ("state", "run", "log", "spool-c1", "spool-c2", "munge", "gpus"):
            (folder / name).mkdir(parents=True)
        folder.chmod(0o755)
        (folder / "munge").chmod(0o755)
        key = folder / "munge" / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        self.has_gpus = self.is_root and self._make_devices()
        self.environ = {
            "SLURM_CONF": str(folder / "slurm.conf"),
            "PATH": f"{path}:{PATH}".lstrip(":"),
        }
        self._ports = free_ports(5)
        self._write()

    def _make_devices(self) -> bool:
        try:
            for number, minor in enumerate((3, 5)):
                os.mknod(self.folder / "gpus" / f"g{number}", 0o20666, os.makedev(1, minor))
        except OSError:
            return False
        return True

    def _write(self) -> None:
        here, folder, user = socket.gethostname().partition(".")[0], self.folder, _user()
        gres = " Gres=gpu:a100:2" * self.has_gpus
        lines = f"""
            ClusterName=town
            SlurmctldHost={here}(127.0.0.1)
            SlurmctldPort={self._ports[0]}
            FirstJobId={1000 * self._ports[0]}
            SlurmUser={user}
            SlurmdUser={user}
            AuthType=auth/munge
            AuthInfo=socket={folder}/munge/socket
            CredType=cred/munge
            MpiDefault=none
            ProctrackType=proctrack/{"cgroup" if self.uses_cgroups else "linuxproc"}
            TaskPlugin=task/none
            SwitchType=switch/none
            SchedulerType=sched/backfill
            SchedulerParameters=bf_interval=1,sched_min_interval=10000
            SelectType=select/cons_tres
            SelectTypeParameters=CR_Core_Memory
            StateSaveLocation={folder}/state
            SlurmdSpoolDir={folder}/spool-%n
            SlurmctldPidFile={folder}/run/slurmctld.pid
            SlurmdPidFile={folder}/run/slurmd-%n.pid
            SlurmctldLogFile={folder}/log/slurmctld.log
            SlurmdLogFile={folder}/log/slurmd-%n.log
            SlurmdParameters=config_overrides
            ReturnToService=2
            InactiveLimit=0
            KillWait=5
            MinJobAge=30
            JobAcctGatherType=jobacct_gather/none
            AccountingStorageType=accounting_storage/none
            PreemptType=preempt/partition_prio
            PreemptMode=REQUEUE
            NodeName=c1 NodeHostname={here} NodeAddr=127.0.0.1 Port={self._ports[1]} CPUs={self.cpus} RealMemory=4000{gres} State=UNKNOWN
            NodeName=c2 NodeHostname={here} NodeAddr=127.0.0.1 Port={self._ports[2]} CPUs={self.cpus} RealMemory=4000{gres} State=UNKNOWN
            PartitionName=debug Nodes=c[1-2] Default=YES MaxTime=INFINITE DefaultTime=00:10:00 DefMemPerCPU=200 State=UP PriorityTier=1 PreemptMode=REQUEUE
            PartitionName=vip Nodes=c[1-2] MaxTime=01:00:00 DefMemPerCPU=200 State=UP PriorityTier=10
            PartitionName=nogo Nodes=c[1-2] MaxTime=00:05:00 State=DOWN
            """
        lines += "GresTypes=gpu\n" * self.has_gpus
        said = [line.strip() for line in lines.splitlines() if line.strip()]
        said = [line for line in said if line.partition("=")[0] not in self.options]
        said[:0] = [f"{key}={value}" for key, value in self.options.items()]
        if self.accounts:
            said = [line for line in said if not line.startswith("AccountingStorageType=")]
            said += [
                "AccountingStorageType=accounting_storage/slurmdbd",
                "AccountingStorageHost=127.0.0.1",
                f"AccountingStoragePort={self._ports[3]}",
                f"AccountingStoragePass={self.folder}/munge/socket",
                "AccountingStorageEnforce=associations,limits,qos",
            ]
        text = "\n".join(said)
        (folder / "slurm.conf").write_text(f"{text}\n")
        device = f"NodeName=c[1-2] Name=gpu Type=a100 File={folder}/gpus/g[0-1]\n"
        (folder / "gres.conf").write_text(device * self.has_gpus)
        cgroup = "CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\nCgroupAutomount=no\n"
        (folder / "cgroup.conf").write_text(cgroup * self.uses_cgroups)

    # ── its daemons ─────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Start all of it; returns when both nodes are idle."""
        munge = self.folder / "munge"
        self._begin(
            "munged", "--foreground", "--force", f"--key-file={munge}/key",
            f"--socket={munge}/socket", f"--pid-file={munge}/pid", f"--log-file={munge}/log",
            f"--seed-file={munge}/seed",
        )  # fmt: skip
        until(lambda: (munge / "socket").exists())
        if self.accounts:
            self._start_accounts()
        self.start_controller("-c")
        for node in ("c1", "c2"):
            self.start_node(node)
        until(lambda: self.say("sinfo", "-h", "-o", "%T", "-p", "debug").split() == ["idle"])

    def _start_accounts(self) -> None:
        data, place = self.folder / "accounts", self.folder / "slurmdbd.conf"
        data.mkdir()
        words = (
            "--no-defaults",
            f"--datadir={data}",
            f"--user={_user()}",
            "--innodb-buffer-pool-size=32M",
        )
        tables = "".join(
            (_TABLES / f"mysql_{each}_tables.sql").read_text() for each in ("system", "performance")
        )
        subprocess.run(
            ["mariadbd", *words, "--bootstrap"], env={**os.environ, **self.environ}, check=True, text=True,
            input=f"create database mysql;\nuse mysql;\n{tables}", capture_output=True,
        )  # fmt: skip
        self._begin(
            "mariadbd", *words, f"--port={self._ports[4]}", f"--socket={data}/socket", "--bind-address=127.0.0.1",
            "--skip-grant-tables",
        )  # fmt: skip
        until(lambda: (data / "socket").exists())
        lines = {
            "AuthType": "auth/munge", "AuthInfo": f"socket={self.folder}/munge/socket", "DbdHost": "localhost",
            "DbdAddr": "127.0.0.1", "DbdPort": self._ports[3], "SlurmUser": _user(),
            "StorageType": "accounting_storage/mysql", "StorageHost": "127.0.0.1", "StoragePort": self._ports[4],
            "StorageUser": "root", "StorageLoc": "accounts", "LogFile": self.folder / "log" / "slurmdbd.log",
            "PidFile": self.folder / "run" / "slurmdbd.pid",
        }  # fmt: skip
        place.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        place.chmod(0o600)
        self._begin("slurmdbd", "-D")
        until(lambda: self.say("sacctmgr", "-n", "show", "cluster", "format=cluster") or self.say(
            "sacctmgr", "-i", "add", "cluster", "town"))  # fmt: skip
        for each in self.accounts:
            done = subprocess.run(
                ["sacctmgr", "-i", *each.split()], env={**os.environ, **self.environ}, capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert not done.returncode, done.stdout + done.stderr

    def start_controller(self, *words: str) -> int:
        """Start slurmctld; its pid, once it answers. Its state is that of before, unless `-c` says otherwise."""
        self._begin("slurmctld", "-D", *words)
        running = self._running["slurmctld"]

        def answers() -> bool:
            assert running.poll() is None, self._end_of_log("slurmctld")
            return "UP" in self.say("scontrol", "ping")

        until(answers)
        return running.pid

    def _end_of_log(self, name: str) -> str:
        logs = (self.folder / "log" / f"{name}{kind}" for kind in (".out", ".log"))
        said = "\n".join(log.read_text() for log in logs if log.exists())
        return f"{name} has ended:\n{said[-3000:]}"

    def start_node(self, node: str) -> int:
        """Start the slurmd of a node; its pid."""
        self._begin("slurmd", "-D", "-N", node, name=node)
        return self._running[node].pid

    def _begin(self, *words: str, name: str = "") -> None:
        program = shutil.which(words[0], path=PATH) or words[0]
        with (self.folder / "log" / f"{name or words[0]}.out").open("ab") as log:
            self._running[name or words[0]] = subprocess.Popen(
                [program, *words[1:]],
                env={**os.environ, **self.environ},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def keep(self, job: str) -> None:
        """Have the controller write down what it knows of a job, which one that is killed within seconds has not done."""
        before, state = time.time_ns(), self.folder / "state/job_state"
        self.say("scontrol", "update", f"JobId={job}", "Comment=kept")

        def is_newer() -> bool:
            # The old one is removed before the new one has its name.
            with contextlib.suppress(FileNotFoundError):
                return state.stat().st_mtime_ns > before
            return False

        until(is_newer)

    @contextlib.contextmanager
    def configured(self, **options: object) -> Iterator[None]:
        """Within, daemons know these lines of slurm.conf, too."""
        place = self.folder / "slurm.conf"
        before = place.read_text()
        try:
            place.write_text(before + "".join(f"{key}={value}\n" for key, value in options.items()))
            self.say("scontrol", "reconfigure")
            yield
        finally:
            place.write_text(before)
            self.say("scontrol", "reconfigure")

    def kill(self, name: str) -> None:
        """Kill a daemon: `slurmctld`, `c1`, `c2`."""
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def stop(self) -> None:
        """Cancel all jobs and end all daemons."""
        with contextlib.suppress(Exception):
            self.say("scancel", "--user", _user())
            until(lambda: not self.queue())
        for process in reversed(self._running.values()):
            process.send_signal(signal.SIGTERM)
        for process in reversed(self._running.values()):
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._running.clear()
        for pid in self._of_steps():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _of_steps(self) -> list[int]:
        """Slurm's own processes of steps, which try for minutes to tell a controller that has ended: by their log."""
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                log = (place / "fd" / "3").readlink()
                if log.is_relative_to(self.folder / "log") and (
                    place / "cmdline"
                ).read_bytes().startswith(b"slurmstepd"):
                    found.append(int(place.name))
        return found

    # ── its commands ────────────────────────────────────────────────────────────────────

    def say(self, *words: str) -> str:
        """What a command prints; "" where it fails."""
        done = subprocess.run(
            words,
            cwd=self.folder,
            env={**os.environ, **self.environ},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout.strip() if not done.returncode else ""

    def queue(self) -> list[str]:
        """The jobs that take or want nodes: `ID STATE`."""
        return self.say("squeue", "-h", "-o", "%i %T").splitlines()

    def state(self, job: str) -> str:
        """What Slurm calls the state of a job; "" where it does not say."""
        return self.say("squeue", "-h", "-t", "all", "-j", job, "-o", "%T")

    def processes(self, job: str) -> list[int]:
        """What runs in a job, or was started in it: processes of this machine, by their variables."""
        marks = {f"SLURM_JOB_ID={job}".encode(), f"SLURM_CONF={self.folder}/slurm.conf".encode()}
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if marks <= {*(place / "environ").read_bytes().split(b"\0")}:
                    found.append(int(place.name))
        return found

    def is_empty(self) -> bool:
        """Whether no job wants or has nodes, by an answer of Slurm's."""
        done = subprocess.run(
            ["squeue", "-h", "-o", "%i"],
            env={**os.environ, **self.environ}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return not done.returncode and not done.stdout.strip()


def _user() -> str:
    import pwd

    return pwd.getpwuid(os.getuid()).pw_name


@contextlib.contextmanager
def town(folder: Path, **options: object) -> Iterator[Town]:
    """A cluster that is up."""
    made = Town(folder, **options)
    try:
        made.start()
        yield made
    finally:
        made.stop()
