"""What came of the cases, as a page of Markdown."""

from __future__ import annotations

from cloud.cases import CALLS, SEED, Case
from cloud.people import Ended

_HEAD = """# What is left in the cloud when a call of AWS comes to grief: nothing

Written by `make cloud-faults`, which plays every case; `make test` plays a few, always the same.

A process brings a pool up, runs a cell and takes the pool down. One of its calls of AWS comes to grief:
the process is killed (-9) before the call was sent, when it was carried out, or when it was answered;
the answer is lost; the call fails with an error that AWS documents, once or as all calls from there on,
or although it was carried out. Then the leases of machines run out, and another process sweeps; in half
of the cases, it also sweeps before that. In all of them, machines, volumes and interfaces are gone when
the leases have run out, and groups, too, when was swept. {count} cases, seed {seed}.

What the process came to: *whole* where the pool was up, ran and went down all the same; *error* where it
ended with an error that says what to do; *killed*.

"""
_KILLS = ("before", "sent", "answered")


def written(results: list[tuple[Case, Ended]]) -> str:
    """The page."""
    ways = ["killed", "lost", "error of any call", "error of its own", "carried out, and an error"]
    lines = [
        _HEAD.format(count=len(results), seed=SEED) + "| call | " + " | ".join(ways) + " |",
        "|---" * (1 + len(ways)) + "|",
    ]
    for action in CALLS:
        own = [(case, ended) for case, ended in results if case.action == action]
        fields = [_field([each for each in own if _way(each[0]) == number]) for number in range(5)]
        lines.append(f"| {action} | " + " | ".join(fields) + " |")
    return "\n".join([*lines, ""])


def _way(case: Case) -> int:
    from cloud.cases import is_common

    if case.how in _KILLS:
        return 0
    if case.how == "lost":
        return 1
    if case.after:
        return 4
    return 2 if is_common(case) else 3


def _field(found: list[tuple[Case, Ended]]) -> str:
    words = {0: "whole", 3: "error", -9: "killed"}
    counts: dict[str, int] = {}
    for _, ended in found:
        word = words[ended.code]
        counts[word] = counts.get(word, 0) + 1
    return ", ".join(f"{count} {word}" for word, count in sorted(counts.items())) or "–"
