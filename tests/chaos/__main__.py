"""Play sequences by seed for some minutes: `make chaos MINUTES=60 JOBS=2 SEED=1`, which writes the table."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from chaos import table
from chaos.jobs import play_all
from chaos.player import Played

import skyward_nb

_PAGE = Path(__file__).with_name("README.md")


def _asked() -> argparse.Namespace:
    words = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    words.add_argument("--minutes", type=float, default=10, help="begin no sequence after these")
    words.add_argument("--jobs", type=int, default=1, help="sequences played side by side")
    words.add_argument("--seed", type=int, default=1, help="of the first sequence")
    words.add_argument(
        "--sequences", type=int, default=0, help="how many at most; 0: as many as fit"
    )
    words.add_argument("--shrink", type=int, default=30, help="plays to find the shortest failure")
    words.add_argument("--steps", action="store_true", help="print each step and each cell")
    words.add_argument("--write", action="store_true", help="write the table")
    return words.parse_args()


def _in_own_mounts() -> None:
    """As root, begin again in a namespace of mounts, where small disks can be made and filled."""
    if os.getuid() == 0 and "CHAOS_MOUNTS" not in os.environ and (tool := shutil.which("unshare")):
        os.environ["CHAOS_MOUNTS"] = "0"
        words = [tool, "--mount", "--propagation", "private", sys.executable, "-m", "chaos"]
        os.execv(tool, [*words, *sys.argv[1:]])


def _commit() -> str:
    """The commit that is played; the version where there is none."""
    words = ["git", "describe", "--always", "--dirty"]
    ran = subprocess.run(words, cwd=_PAGE.parent, capture_output=True, text=True)
    return ran.stdout.strip() or f"version {skyward_nb.__version__}"


def _tell(seed: int, played: Played, part: str) -> None:
    words = played.defect.partition("\n")[0][:300] or "well"
    print(f"{seed:6} {played.steps:3} steps {sum(played.faults.values()):3} faults {played.seconds:5.0f} s  {words}", flush=True)  # fmt: skip
    if played.defect:
        print(played.defect, part, sep="\n", flush=True)


def main() -> int:
    """Print a line for each sequence; returns how many had a defect."""
    asked = _asked()
    _in_own_mounts()
    log = print if asked.steps else None
    found, loads = list[tuple[int, Played]](), [os.getloadavg()[0]]
    for seed, played, part in play_all(asked.seed, asked.minutes, asked.sequences, asked.jobs, asked.shrink, log):  # fmt: skip
        found.append((seed, played))
        loads.append(os.getloadavg()[0])
        _tell(seed, played, part)
    found.sort(key=lambda one: one[0])
    if asked.write:
        words = f"MINUTES={asked.minutes:g} JOBS={asked.jobs} SEED={asked.seed}"
        where = table.ground(words, _commit(), os.cpu_count() or 1, loads)
        _PAGE.write_text(table.written(found, where))
    print(table.summary(found))
    return sum(bool(played.defect) for _, played in found)


if __name__ == "__main__":
    sys.exit(bool(main()))
