"""Workers of torchrun that failed, as one error."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from skyward_nb.words.errors import SkyError
from skyward_nb.words.ranks import count_ranks


@dataclass(frozen=True)
class FailedWorker:
    """A worker that failed: its `rank` among all workers, its exit code, or minus the signal that killed it.

    `message` and `traceback` are what a function under torch's `@record` raised there, else empty.
    """

    rank: int
    local_rank: int
    exit_code: int
    message: str = ""
    traceback: str = ""

    @property
    def how(self) -> str:
        """What it raised, else how it ended."""
        if self.message:
            return self.message
        if self.exit_code < 0:
            try:
                return f"killed by {signal.Signals(-self.exit_code).name}"
            except ValueError:
                return f"killed by signal {-self.exit_code}"
        return f"exited with code {self.exit_code}"


class WorkersFailed(SkyError):
    """Workers of torchrun failed on a node, after all restarts; `workers` are these, the first first.

    Those that failed alike stand in one line. Decorate a script's main function with torch's `@record`, and
    its exception and traceback are here; else they are in the output.
    """

    def __init__(self, workers: tuple[FailedWorker, ...]) -> None:
        super().__init__(_text(workers))
        self.workers = workers

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.workers,)


def _text(workers: tuple[FailedWorker, ...]) -> str:
    alike: dict[str, list[FailedWorker]] = {}
    for each in workers:
        alike.setdefault(each.how, []).append(each)
    lines = [
        f"{count_ranks([each.rank for each in same]).replace('rank', 'worker')}: {how}"
        for how, same in alike.items()
    ]
    first = workers[0].traceback
    return "\n".join([*lines, *([first] if first else [])])
