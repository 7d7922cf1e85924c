"""Values that were sent and could not be rebuilt on ranks, as one error that says what to do."""

from __future__ import annotations

from skyward_nb.pickling.diagnosis import kind_of
from skyward_nb.pool.outcome import RunOutcome
from skyward_nb.protocol.events import Rejected
from skyward_nb.system.distributions import distribution_of
from skyward_nb.words.errors import PayloadError
from skyward_nb.words.ranks import count_ranks, ranks_by


def rejection_of(outcome: RunOutcome) -> PayloadError | None:
    """The error for the first value that ranks rejected; these bound nothing and ran nothing."""
    ends = outcome.done.items()
    found = {rank: end.rejected for rank, end in ends if end.rejected and end.rejected.reason}
    if not found:
        return None
    rejected, ranks = next(iter(ranks_by(found).items()))
    sending = (unit for unit, _ in outcome.plan.sending)
    unit = next((unit for unit in sending if unit.labels == rejected.labels), None)
    name = unit.shown if unit else "the call's arguments"
    type_name = kind_of(unit.values[0]) if unit else "what was packed"
    advice = _how_to_rebuild(rejected, is_call=unit is None)
    lack = f"cannot be rebuilt on {count_ranks(ranks)}"
    return PayloadError(name, name, type_name, rejected.reason, advice, lack)


def _how_to_rebuild(rejected: Rejected, *, is_call: bool) -> str:
    ran = "The call did not run." if is_call else "No name was bound, and the cell did not run."
    if "not those that were packed" in rejected.reason:
        return (
            "It changed while it was packed (does a thread still write to it?), or the store was "
            "damaged. Nothing was changed; the next run sends it again."
        )
    if rejected.gone:
        return f"{ran[:-1]}; the next run sends it whole."
    if rejected.missing:
        package = distribution_of(rejected.missing)
        here = "this Python's own: pip install " if is_call else "the notebook's own: %pip install "
        return (
            f"The ranks lack the module {rejected.missing}: add it to their environment, "
            f"pip={package} (with provider=local that is {here}{package}). {ran}"
        )
    return (
        "It was packed here without complaint, so look at its class's __reduce__ or __setstate__, "
        f"or make it on the ranks. {ran}"
    )
