"""Slurm's own commands, each a script of a machine that has them: submit, look, cancel."""

from __future__ import annotations

import os
import shlex

from skyward_nb.bootstrap.remote_shell import ScriptResult, Shell, ShellGone
from skyward_nb.providers.far.take_down import EngineFault
from skyward_nb.providers.slurm.batch_script import job_name
from skyward_nb.providers.slurm.job_states import FORMAT, JobState, read_states
from skyward_nb.words.provider_access import ContainerRuntime

_LIMIT = 60.0
_CLEAN = r"""
for each in $(env | sed -n 's/^\(SLURM_[A-Za-z0-9_]*\)=.*/\1/p'); do
  [ "$each" = SLURM_CONF ] || unset "$each"
done
"""
"""A notebook may be in a job itself, and its variables would be taken for those of the new one."""
_OUTPUT = r"""
folder=${SKYWARD_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/skyward_nb}/slurm
output=$folder/%s.out
"""
_NO_FOLDER = 71


class SlurmSilent(EngineFault):
    """Slurm's controller did not answer, which passes; the text has its words."""


class SlurmUnasked(SlurmSilent):
    """A job was not submitted, as the login node has no room for what it will say."""


class SlurmRefused(EngineFault):
    """Slurm has refused a job, in these words."""


class SlurmController:
    """Slurm, by the commands of the machine that `shell` leads to."""

    def __init__(self, shell: Shell) -> None:
        self.shell: Shell = shell

    async def container_runtime(self) -> ContainerRuntime:
        """What runs containers: pyxis where srun knows its options, else apptainer. Raises `SlurmSilent`."""
        ran = await self._run("exec srun --help")
        return "pyxis" if b"--container-image" in ran.out else "apptainer"

    async def submit(self, pool_id: str, words: list[str], script: str) -> str:
        """Submit a job; its id. Raises `SlurmRefused`, `SlurmSilent`."""
        command = f'exec sbatch --output="$output" {shlex.join(words)}'
        ran = await self._with_output(pool_id, command, script.encode())
        if ran.code:
            if _is_silent(ran.err):
                raise SlurmSilent(_said(ran))
            raise SlurmRefused(_said(ran))
        return ran.out.decode().strip().splitlines()[-1].partition(";")[0]

    async def begin_step(self, pool_id: str, script: str) -> None:
        """Run a script that starts a step of a job that is there, and has what that says go to `$output`.

        Raises `SlurmRefused`, `SlurmSilent`.
        """
        ran = await self._with_output(pool_id, f"export output\n{script}")
        if ran.code:
            raise SlurmRefused(_said(ran))

    async def _with_output(self, pool_id: str, command: str, data: bytes = b"") -> ScriptResult:
        """Run a command that has a file for what a pool's job says; raises `SlurmUnasked` where there is none."""
        place = f'{_OUTPUT % shlex.quote(pool_id)}mkdir -p "$folder" || exit {_NO_FOLDER}\n'
        ran = await self._run(place + command, data)
        if ran.code == _NO_FOLDER:
            raise SlurmUnasked(_said(ran))
        return ran

    async def look(self, pool_id: str, job: str = "") -> JobState | None:
        """The pool's job; None if Slurm does not know it (any more). Raises `SlurmSilent`."""
        which = f"--jobs={job}" if job else f"--name={job_name(pool_id)}"
        ran = await self._run(f"exec squeue -h -t all -o {shlex.quote(FORMAT)} {which}")
        if ran.code and "nvalid job id" in ran.err:
            return None
        if ran.code:
            raise SlurmSilent(_said(ran))
        found = read_states(ran.out.decode(errors="replace"))
        # By its name, an earlier one may have been lost in submission.
        return next(
            (each for each in found if each.waits or each.runs), found[-1] if found else None
        )

    async def others(self, partition: str) -> int | None:
        """How many jobs wait in a partition; None if that is not said."""
        ran = await self._run(f"exec squeue -h -t PENDING -p {shlex.quote(partition)} -o %i")
        return None if ran.code else len(ran.out.splitlines())

    async def cancel(self, pool_id: str, job: str = "") -> None:
        """Cancel the pool's job, by its name where its id is not known; raises `SlurmSilent`."""
        which = job or f'--name={job_name(pool_id)} --user="$(id -un)"'
        ran = await self._run(f"exec scancel {which}")
        if ran.code and "nvalid job id" not in ran.err and "already" not in ran.err:
            raise SlurmSilent(_said(ran))

    async def nodes(self, hostlist: str) -> list[str]:
        """The names of the nodes in a hostlist such as `c[1-2]`; raises `SlurmSilent`."""
        ran = await self._run(f"exec scontrol show hostnames {shlex.quote(hostlist)}")
        if ran.code:
            raise SlurmSilent(_said(ran))
        return ran.out.decode().split()

    async def output(self, pool_id: str) -> str:
        """The end of what the batch script said, or the step's srun; "" if that cannot be read."""
        try:
            ran = await self._run(f'{_OUTPUT % shlex.quote(pool_id)}tail -c 2000 "$output"')
        except SlurmSilent:
            return ""
        return ran.out.decode(errors="replace").strip()

    async def forget(self, pool_id: str) -> None:
        """Remove the file of what they said; jobs that wait need its folder."""
        try:
            await self._run(f'{_OUTPUT % shlex.quote(pool_id)}rm -f "$output"')
        except SlurmSilent:
            return

    async def named(self) -> list[tuple[str, str]]:
        """(id, pool id) of each job of this user that has the name of a pool; raises `SlurmSilent`."""
        ran = await self._run('exec squeue -h -o "%i %j" --user="$(id -un)"')
        if ran.code:
            raise SlurmSilent(_said(ran))
        lines = [line.split(None, 1) for line in ran.out.decode(errors="replace").splitlines()]
        prefix = job_name("")
        return [
            (parts[0], parts[1].removeprefix(prefix))
            for parts in lines
            if len(parts) == 2 and parts[1].startswith(prefix)
        ]

    async def _run(self, script: str, data: bytes = b"") -> ScriptResult:
        said: list[str] = []
        try:
            ran = await self.shell.run(_CLEAN + script, data=data, limit=_LIMIT, heard=said.append)
        except ShellGone as gone:
            raise SlurmSilent(str(gone)) from gone
        except TimeoutError:
            # sbatch tries again and again where it may submit no more jobs now, and says so.
            last = f"; it says: {said[-1].strip()}" if said else ""
            raise SlurmSilent(f"{self.shell.name}: no answer in {_LIMIT:.0f} s{last}") from None
        return ran


def clean_environ() -> dict[str, str]:
    """This process's environment without what Slurm has set for a job that it is in."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("SLURM_") or name == "SLURM_CONF"
    }


def _is_silent(err: str) -> bool:
    """Whether Slurm's controller, and not its rules, is why a command failed."""
    words = ("Unable to contact slurm controller", "Socket timed out", "Connection refused")
    return any(each in err for each in words)


def _said(ran: ScriptResult) -> str:
    lines = [line.strip() for line in ran.err.splitlines() if line.strip()]
    return "\n".join(lines) or f"it ended with status {ran.code}"
