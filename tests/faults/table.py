"""The results as a page of Markdown: fault × moment, how it ended, how long until it was told."""

from __future__ import annotations

from statistics import median

from faults.matrix import EVERY_FAULT, EVERY_MOMENT, LEFT_OUT, SIZES, Case, Fault, Moment

_HEAD = """# What happens when something goes wrong

Written by `make faults`, which plays every case; `make test` plays one of each fault and each moment.

Each case is a fault in a moment on {sizes} ranks (in a collective: 4 and 16). After each, the next run
must be right on all ranks, on the same pool or a new one; what was bound on ranks must be kept unless
some had to go; and no process, zombie, thread, descriptor, folder or stored value may be left.

In each field: how it ended, and the seconds from the fault until that was told, as median / longest
over the sizes. A rank that does not stop is killed after its grace, which is {grace:g} s here ({many:g} s for
16 ranks, {group:g} s in a collective; {stay:g} s where none may be killed); an agent is stopped for {frozen:g} s; a
client that is gone for good is waited for {idle:g} s. A run that has not ended {hang:g} s after it began is a hang, and fails. The times are of
the machine on which this was written, and are no promise.

{count} cases.
"""


def written(results) -> str:
    """The page."""
    from faults.hands import FROZEN_FOR, HANG
    from faults.stand import GRACE, GRACE_IN_A_GROUP, GRACE_OF_MANY, GRACE_WHERE_ALL_STAY, IDLE

    sizes = ", ".join(map(str, SIZES[:-1])) + f" and {SIZES[-1]}"
    lines = [
        _HEAD.format(
            sizes=sizes,
            grace=GRACE,
            many=GRACE_OF_MANY,
            group=GRACE_IN_A_GROUP,
            stay=GRACE_WHERE_ALL_STAY,
            frozen=FROZEN_FOR,
            idle=IDLE,
            hang=HANG,
            count=len(results),
        ),
        "| fault | " + " | ".join(moment.value for moment in EVERY_MOMENT) + " |",
        "|---" * (1 + len(EVERY_MOMENT)) + "|",
    ]
    for fault in EVERY_FAULT:
        fields = [_field(results, fault, moment) for moment in EVERY_MOMENT]
        lines.append(f"| {fault.value} | " + " | ".join(fields) + " |")
    lines += ["", "A dash: no case is made of these two.", ""]
    for faults, moments, why in LEFT_OUT:
        which = "; ".join(fault.value for fault in faults)
        when = ", ".join(moment.value for moment in moments)
        lines.append(f"- {which} – {when}: {why}.")
    return "\n".join([*lines, ""])


def _field(results, fault: Fault, moment: Moment) -> str:
    found = [(case, result) for case, result in results if _is(case, fault, moment)]
    if not found:
        return "–"
    ends = " or ".join(dict.fromkeys(result.end.value for _, result in found))
    times = [result.seconds for _, result in found]
    return f"{ends} {median(times):.2f} / {max(times):.2f}"


def _is(case: Case, fault: Fault, moment: Moment) -> bool:
    return case.fault is fault and case.moment is moment
