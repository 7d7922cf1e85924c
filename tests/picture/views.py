"""Views that tests draw: one of each kind a person meets."""

from __future__ import annotations

from msgspec.structs import replace

from skyward_nb.names.plan import ManifestRow
from skyward_nb.protocol.events import (
    Display,
    Metric,
    Output,
    Progress,
    RankDone,
    RankPhase,
    RankReady,
    Step,
    Telemetry,
)
from skyward_nb.protocol.message_parts import Gpu
from skyward_nb.view.folding import fold
from skyward_nb.view.run_view import RankView, RunView


def starting() -> RunView:
    """Nodes on their way."""
    view = RunView(title="Starting 4 ranks", awaited=4, began=0.0, now=0.0)
    view = fold(view, Step((0, 1, 2, 3), "agent"))
    view = fold(replace(view, now=0.5), Step((0, 1, 2, 3), "agent", done=True))
    view = fold(view, Step((0, 1, 2, 3), "imports", "torch"), RankReady(1, 0, 7))
    return replace(view, now=2.0)


def running(ranks: int = 4) -> RunView:
    """Ranks in a loop, the third of them behind, with curves, figures of theirs, and output."""
    view = RunView(
        run="default-ab12cd/7",
        title=f"Running on {ranks} ranks",
        about="default · local · torch",
        state="running",
        ranks={rank: RankView() for rank in range(ranks)},
        nodes={rank: rank for rank in range(ranks)},
        logs="%sky logs run=7",
    )
    view = replace(view, now=20.0)
    for rank in range(ranks):
        done = 51 if rank == 2 else 66
        view = fold(
            view,
            Progress(rank, 1, done, 100, "epoch", 20.0),
            Progress(rank, 2, 3, 10, "batch", 1.0, level=1, unit="batch"),
            *(Metric(rank, step, {"loss": 1 / (step + 1 + rank)}) for step in range(50)),
            Telemetry(rank, 97.0, 600_000_000, Gpu(10**9, 8 * 10**9, 90, 61)),
            Output(rank, "stdout", "epoch 6 done\n"),
        )
    return fold(
        view,
        Output(0, "stdout", "saved \x1b[32mcheckpoint\x1b[0m <6>\n"),
        Output(2, "stderr", "UserWarning: slow\n"),
        Display(1, {"image/png": "iVBORw0KGgo=", "text/plain": "<Figure>"}),
    )


def only_measured(ranks: int = 4) -> RunView:
    """Ranks that say nothing, of which only processor and memory are known."""
    view = RunView(state="running", ranks={rank: RankView() for rank in range(ranks)}, now=3.0)
    return fold(view, *(Telemetry(rank, 97.0, 10**8 + rank) for rank in range(ranks)))


def finished(ranks: int = 4) -> RunView:
    """The same at its end."""
    view = running(ranks)
    for rank in range(ranks):
        view = fold(
            replace(view, now=32.0 if rank == 2 else 21.0),
            Progress(rank, 1, 100, 100, "epoch", 20.0, over=True),
            RankDone(run=7, rank=rank),
        )
    return replace(
        view,
        state="finished",
        headline=f"{ranks} ranks finished",
        ended=32.0,
        notes=("a note <of ours>",),
        foot=("sent x (12 MB)", "2 unchanged"),
        manifest=(
            ManifestRow("x", "sent", "ndarray", 12_000_000, 0.004),
            ManifestRow("y", "unchanged", "int", 5),
        ),
    )


def busy() -> RunView:
    """Ranks that take in what was sent."""
    return fold(running(), *(RankPhase(rank, "taking in 512 MB") for rank in range(4)))
