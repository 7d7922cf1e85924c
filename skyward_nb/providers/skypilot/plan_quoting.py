"""What a pool would cost by SkyPilot's own plan, before anything is rented."""

from __future__ import annotations

import tempfile
from pathlib import Path

from skyward_nb.providers.skypilot.cli_answers import LaunchPlan, advised, chosen_plan, last_words
from skyward_nb.providers.skypilot.cluster_request import asked, plan_arguments, task
from skyward_nb.providers.skypilot.sky_program import SkyProgram, SkySilent
from skyward_nb.words.errors import AccountError, NothingFits
from skyward_nb.words.offers import InstanceType, Offer, Price, Quote, spell_dollars
from skyward_nb.words.provider_access import SkyPilotAccess
from skyward_nb.words.spec import PoolSpec

_PLAN_LIMIT = 300.0
_CENT = 0.01


async def quote_of(spec: PoolSpec) -> Quote:
    """The machines that SkyPilot would rent, as the one offer.

    Raises `AccountError` where SkyPilot cannot be asked, `NothingFits` where it has no such machines, or they
    cost more than `max_hourly_cost`.
    """
    program = SkyProgram(spec.skypilot or SkyPilotAccess())
    with tempfile.TemporaryDirectory(prefix="skyward-plan-") as folder:
        path = Path(folder) / "task.yaml"
        path.write_bytes(task("plan"))
        try:
            answer = await program.run(plan_arguments(spec, str(path)), limit=_PLAN_LIMIT)
        except SkySilent as silent:
            raise AccountError(f"SkyPilot cannot be asked: {silent}") from None
    if answer.code:
        said = last_words(answer.text) or f"it ended with {answer.code}"
        raise NothingFits(f"SkyPilot has no such machines: {advised(said)}")
    plan = chosen_plan(answer.text)
    if plan is None:
        said = last_words(answer.text) or "it said nothing"
        raise AccountError(f"SkyPilot named no machines: {advised(said)}")
    quote = quote_from(plan, spec)
    check_price(spec, quote)
    return quote


def quote_from(plan: LaunchPlan, spec: PoolSpec) -> Quote:
    """A plan as a quote of one offer."""
    gpu = spec.real_accelerator
    machine = InstanceType(
        name=plan.instance,
        arch="x86_64",
        cpus=int(_number(plan.cpus)),
        memory=_number(plan.memory),
        gpu=gpu.name if gpu else None,
        gpus=gpu.count if gpu else 0,
    )
    price = None
    if plan.dollars is not None:
        each = plan.dollars / spec.nodes
        price = Price(dollars=each, source="SkyPilot's catalogue", spot=spec.spot == "yes")
    offer = Offer(type=machine, region=plan.infra, spot=spec.spot == "yes", price=price)
    return Quote(nodes=spec.nodes, offers=(offer,))


def check_price(spec: PoolSpec, quote: Quote) -> None:
    """Raise `NothingFits` if a machine costs more an hour than it may, or no price is known for a limit."""
    if why := why_too_dear(spec, quote.first):
        raise NothingFits(f"SkyPilot has no machines within the limit: {why}")


_agreed: dict[tuple[str, ...], float] = {}
"""Dollars an hour by what is asked of SkyPilot."""


def hold(spec: PoolSpec, quote: Quote) -> None:
    """Keep the price that was agreed to for this pool."""
    if quote.first is not None:
        _agreed[tuple(asked(spec))] = quote.first


def agreed_price(spec: PoolSpec) -> float | None:
    """The dollars an hour that were agreed to for this pool in this process; None if that is not known."""
    return _agreed.get(tuple(asked(spec)))


def why_too_dear(spec: PoolSpec, dollars: float | None) -> str:
    """Why machines for so many dollars an hour, all together, are not to be had; "" if they are.

    None: SkyPilot has no price. Raised after a launch, too: what is taken may be dearer than what was planned.
    """
    limits = {"max_hourly_cost": spec.max_hourly_cost, "max_cost": spec.max_cost}
    if dollars is None:
        held = [f"{name}={most:g}" for name, most in limits.items() if most is not None]
        return (
            f"it has no price for them, and {held[0]} cannot be enforced without one"
            if held
            else ""
        )
    each, most = dollars / spec.nodes, spec.max_hourly_cost
    if most is not None and each > most:
        return f"the cheapest costs {spell_dollars(each)} an hour, and max_hourly_cost={most:g}"
    agreed, free = agreed_price(spec), spec.confirm_above
    if agreed is not None and free is not None and dollars > max(agreed, free) + _CENT:
        return (
            f"it costs {spell_dollars(dollars)} an hour, and {spell_dollars(agreed)} was agreed to"
        )
    return ""


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
