"""What a pool of rented machines would cost: shown, and agreed to, before anything is rented."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from skyward_nb.picture.wording import clock, columns
from skyward_nb.protocol.events import Phase
from skyward_nb.providers.provider_table import PROVIDERS
from skyward_nb.words.errors import AccountError, NotAgreed
from skyward_nb.words.offers import Offer, Quote, spell_dollars
from skyward_nb.words.simulation import simulation_notes

if TYPE_CHECKING:
    from skyward_nb.pool.pool import Pool
    from skyward_nb.show.display import RunDisplay
    from skyward_nb.words.spec import PoolSpec

_MOST_ROWS = 8
_RENTED = {"aws": "AWS", "sky": "SkyPilot"}
"""Providers of machines that cost money, and who is asked for their prices."""
Ask = Callable[[list[str], str], str | None]
"""Shows lines, asks a question, and gives the answer; None where nobody can answer."""


def quote_for(spec: PoolSpec) -> Quote | None:
    """The offers for this pool; None if its machines cost nothing.

    Raises `AccountError` where AWS or SkyPilot cannot be asked, `NothingFits` where there are no such machines,
    or `max_cost` is too little for any.
    """
    if spec.provider not in _RENTED:
        return None
    from skyward_nb.providers.loop_thread import LOOP

    if spec.provider == "sky":
        from skyward_nb.providers.skypilot.plan_quoting import quote_of as planned

        return LOOP.start(planned(spec)).future.result()
    from skyward_nb.providers.aws.provisioning import affordable
    from skyward_nb.providers.aws.quoting import quote_of

    quote = LOOP.start(quote_of(spec)).future.result()
    return replace(quote, offers=tuple(affordable(spec, quote.offers)))


def say_kept(pool: Pool) -> None:
    """Say on stderr which machines of a pool that is down are stopped, and go on to cost something."""
    if pool.closing.kept:
        print(f"pool {pool.spec.name} is down: {pool.closing.kept}", file=sys.stderr)


def _quota_lines(spec: PoolSpec, quote: Quote) -> tuple[str, ...]:
    """A line on each quota of AWS that is too small for an offer."""
    if spec.provider != "aws":
        return ()
    from skyward_nb.providers.aws.quotas import quota_remarks
    from skyward_nb.providers.loop_thread import LOOP

    return LOOP.start(quota_remarks(spec, quote)).future.result()


def make_sure(spec: PoolSpec, display: RunDisplay) -> None:
    """Ask for agreement to the cost of a pool about to start, and show it in the display.

    It also tells what of the pool is simulated.

    Raises `NotAgreed` where nobody does, and what `quote_for` raises, before anything is rented.
    """
    display.note(*simulation_notes(spec))
    if spec.provider not in _RENTED:
        return
    from skyward_nb.providers.aws.quoting import hold

    shown: list[Quote] = []

    def quoted() -> Quote:
        display.watch(Phase(f"asking {_RENTED[spec.provider]} what can be rented"))
        try:
            quote = quote_for(spec)
        finally:
            display.watch(Phase(""))
        assert quote is not None
        shown[:] = [quote]
        return quote

    def ask(lines: list[str], question: str) -> str | None:
        known = [*_quota_lines(spec, shown[0]), *display.view.notes]
        return ask_person([*lines, *known], question)

    if spec.provider == "sky":  # its list prices do not rise while a person thinks
        from skyward_nb.providers.skypilot.plan_quoting import hold as hold_plan

        quote = quoted()
        agree(
            spec,
            quote,
            lambda lines, question: ask_person([*lines, *display.view.notes], question),
        )
        hold_plan(spec, quote)
        return
    quote = agreed(spec, quoted, ask)
    hold(spec, quote)
    display.note(*quote.remarks)


def agreed(spec: PoolSpec, quoted: Callable[[], Quote], ask: Ask) -> Quote:
    """The quote that the person agreed to; asked again if the price rose before the answer.

    Raises `NotAgreed`, and what `quoted` raises.
    """
    quote = quoted()
    agree(spec, quote, ask)
    while _is_dearer(now := quoted(), quote):
        quote = now
        agree(spec, quote, ask)
    return now


def _is_dearer(now: Quote, before: Quote) -> bool:
    if now.most is None or before.most is None:
        return now.most is None and before.most is not None
    return now.most > before.most


def agree(spec: PoolSpec, quote: Quote, ask: Ask) -> None:
    """Ask where it costs more an hour than is agreed to without; raises `NotAgreed` for a no.

    Where nobody can answer, `max_cost` is an agreement, if the price is known that it goes by.
    """
    most = quote.most
    if _is_agreed(spec, quote):
        return
    words = hourly_words(quote)
    answer = ask(quote_lines(spec, quote), f"Rent that, for {words}? [y/N] ")
    if answer is None:
        if spec.max_cost is not None and most is not None:
            return
        raise NotAgreed(most, _nobody(spec, words, is_known=most is not None))
    if not says_yes(answer):
        raise NotAgreed(most, f"you did not agree to {words}: nothing was rented")


def says_yes(answer: str) -> bool:
    """Whether a person's answer is a yes."""
    return answer.strip().lower() in ("y", "yes")


def _is_agreed(spec: PoolSpec, quote: Quote) -> bool:
    """Whether it costs no more than is agreed to without a question."""
    most, limit = quote.most, spec.confirm_above
    return limit is None or (most is not None and most <= limit)


def _nobody(spec: PoolSpec, words: str, *, is_known: bool) -> str:
    """The text of the error if nobody can agree."""
    why = f"over confirm_above={spec.confirm_above:g}" if is_known else "and the price is unknown"
    limits = "max_cost=20, which ends the pool when it has cost 20 dollars, or `yes`"
    ways = limits if is_known else "`yes` (max_cost= cannot be enforced without a price)"
    return (
        f"{words}, {why}: nobody can be asked here, and nothing was rented. Set a limit or agree "
        f"beforehand: {ways}. In Python: sky.Compute(..., max_cost=20), or yes=True"
    )


def ask_person(lines: list[str], question: str) -> str | None:
    """Ask the person at the notebook or terminal."""
    if threading.current_thread() is not threading.main_thread():
        return None
    from IPython.core.error import StdinNotImplementedError
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    has_kernel = getattr(shell, "kernel", None) is not None
    if not has_kernel and not (sys.stdin is not None and sys.stdin.isatty()):
        return None
    print(*lines, sep="\n", flush=True)
    try:
        return input(question)
    except (StdinNotImplementedError, EOFError):
        return None


# ── in words ────────────────────────────────────────────────────────────────────────────


def dry_lines(spec: PoolSpec) -> list[str]:
    """Lines on the cost of starting this pool; none if it would cost nothing.

    Where AWS cannot be asked that is said, with what the prices that ship with us would make it, if
    there are any. Raises what a start would raise at once for what the provider has not got.
    """
    PROVIDERS[spec.provider]().check(spec)
    notes = simulation_notes(spec)
    if spec.provider == "slurm":
        from skyward_nb.providers.slurm.batch_script import dry_run_lines

        return [*notes, *dry_run_lines(spec)]
    if spec.provider == "kubernetes":
        from skyward_nb.providers.kubernetes.manifest import dry_run_lines as pod_lines

        return [*notes, *pod_lines(spec)]
    if spec.provider == "ray":
        from skyward_nb.providers.ray.group_words import dry_run_lines as ray_lines

        return [*notes, *ray_lines(spec)]
    if spec.provider == "sky":
        from skyward_nb.providers.skypilot.cluster_request import dry_run_lines as sky_lines

        notes = (*notes, *sky_lines(spec))
    try:
        quote = quote_for(spec)
    except AccountError as error:
        from skyward_nb.providers.aws.quoting import offline_quote

        region = spec.aws.region if spec.aws else None
        quote = offline_quote(spec, region) if region is not None else None
        if quote is None or quote.first is None:
            raise
        return [*notes, error.message, *quote_lines(spec, quote)]
    if quote is None:
        return [*notes]
    return [*notes, *quote_lines(spec, quote), *_quota_lines(spec, quote)]


def quote_lines(spec: PoolSpec, quote: Quote) -> list[str]:
    """A quote as a table, and what is to be said of it."""
    shown = quote.offers[:_MOST_ROWS]
    heads = ("machines", "each has", "where", "kind", "price", "as says")
    rows = [_row(quote.nodes, offer) for offer in shown]
    lines = ["Offers, in the order in which they are tried:", *columns([heads, *rows])]
    if (more := len(quote.offers) - len(shown)) > 0:
        most = "" if quote.most is None else f", for at most {spell_dollars(quote.most)} an hour"
        lines.append(f"and {more} more{most}")
    lines += quote.remarks
    lines.append("Prices are those of machines; their disks, addresses and traffic come on top.")
    if spec.max_cost is not None and quote.first:
        lasts = clock(3600 * spec.max_cost / quote.first)
        lines.append(
            f"max_cost={spec.max_cost:g} lasts for {lasts} of the first; then the pool ends"
        )
    return lines


def hourly_words(quote: Quote) -> str:
    """What all machines cost an hour, in words."""
    first, most = quote.first, quote.most
    if first is None:
        return "a price that is not known"
    if most is None or round(most, 3) == round(first, 3):
        return f"{spell_dollars(first)} an hour"
    return f"{spell_dollars(first)} to {spell_dollars(most)} an hour"


def _row(nodes: int, offer: Offer) -> tuple[str, ...]:
    kind, price = offer.type, offer.price
    many = f"{kind.gpus * kind.gpu_part:g}"
    size = f" {kind.gpu_memory:.0f} GB" if kind.gpu_memory else ""
    gpus = [f"{many} × {kind.gpu}{size}"] if kind.gpu else []
    has = ", ".join([*gpus, f"{kind.cpus} cpus", f"{kind.memory:g} GB"])
    where = ", ".join(offer.zones[:2]) + ", …" * (len(offer.zones) > 2) or offer.region
    rate = offer.hourly(nodes)
    costs = "not known" if rate is None else f"{spell_dollars(rate)} / h"
    how = "spot" if offer.spot else "on demand"
    return f"{nodes} × {kind.name}", has, where, how, costs, price.source if price else ""
