"""What a cell would send with `dry_run`: nothing is started, sent or marked as sent."""

from __future__ import annotations

from skyward_nb.names.ledger import Ledger, SourceFinder
from skyward_nb.notebook.pool_finder import ResolvedPool
from skyward_nb.pool.installing import dry_words
from skyward_nb.pool.outcome import RunRequest, plan_of
from skyward_nb.reports.cost_approval import dry_lines
from skyward_nb.show.display import RunDisplay, spell_result
from skyward_nb.words.errors import spell_size


def dry_run(
    request: RunRequest,
    meant: ResolvedPool,
    display: RunDisplay,
    sources: SourceFinder,
) -> None:
    """Show what a run would send to a pool, or to a new one of its spec."""
    pool, spec = meant.pool, meant.spec
    has_names = pool is not None and pool.is_ready
    new = Ledger(spec.world_size, sources, spec.image.includes)
    ledger = pool.ledger if pool and has_names else new
    plan = plan_of(request, ledger)
    going = [row for row in plan.rows if row.status == "sent"]
    names = f"{len(going)} name{'s' * (len(going) != 1)} ({spell_size(plan.sent_bytes)})"
    to = spell_result(request.ranks, spec.world_size)
    words = f"Dry run: {names} would be sent to {to}; nothing was sent or run"
    notes = list(plan.notes)
    if plan.absent:
        notes.append(f"neither the notebook nor the ranks have: {', '.join(plan.absent)}")
    if pool is not None and not has_names:
        notes.insert(0, "ranks are gone: all would be started anew first")
    if pool is not None:
        notes[:0] = dry_words(spec, pool.spec)
    if pool is None:
        place = f", in the place of {meant.replaced.spec}" if meant.replaced else ""
        notes[:0] = [f"a pool would be started first: {spec}{place}", *dry_lines(spec)]
    if request.cell is not None and request.cell.names.blind:
        blind = ", ".join(request.cell.names.blind)
        notes.append(f"not followed, so names that only this reads would be missing: {blind}")
    notes += [f"project module {file.name} would travel as source" for file in plan.modules]
    display.show_plan(plan)
    display.end("finished", words, notes=tuple(notes), is_dry=True)
