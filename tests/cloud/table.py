"""What came of the cases, as a page of Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from cloud.cases import OTHERS, POOL, SEED, Case

_HEAD = """# What is left in the cloud when a call of AWS fails: nothing

Written by `make cloud-faults`, which plays every case; `make test` plays a few, always the same.

A process brings a pool up, runs a cell and takes the pool down; or rents another machine for one that
EC2 took back; or sweeps what somebody left who was killed; or makes an image, or removes one. One of its calls of AWS fails: the
process is killed (-9) before the call was sent, when it was carried out, or when it was answered; the
answer is lost; the call fails with an error that AWS documents, once or as all calls from there on, or
although it was carried out. Then the leases of machines run out, and another process sweeps; in half of
the cases, it also sweeps before that. In all of them, machines, volumes and interfaces are gone when the
leases have run out, and groups and Elastic IP addresses, too, when was swept. {count} cases, seed {seed}.

What the process came to: *whole* where the pool was up, ran and went down all the same; *error* where it
ended with an error that says what to do; *killed*.

"""
_KILLS = ("before", "sent", "answered")


_WAYS = ("killed", "lost", "error of any call", "error of its own", "carried out, and an error")
_TITLES = {
    "quota": "A pool where there is no quota for spot machines",
    "boot": "A pool whose machines' first script fails",
    "stopped": "A pool whose machine is stopped at its end",
    "started": "A later pool that has it started",
    "ended": "A sweep that ends it",
    "baked": "A pool of whose machine an image is made at its end",
    "unbaked": "The image is removed",
    "half baked": "A sweep of an image whose maker was killed",
    "replacement": "Another machine for one that was taken back, and the pool down",
    "sweep": "A sweep of what a killed process left",
    "sweep without a record": "A sweep where its record is gone, too",
}


def written(results: list[tuple[Case, int]]) -> str:
    """The page; with each case what its process ended with."""
    lines = [_HEAD.format(count=len(results), seed=SEED)]
    of_pools = [each for each in results if each[0].scene not in OTHERS]
    lines += _table("A pool up, a cell, and the pool down", POOL, of_pools)
    for scene, calls in OTHERS.items():
        own = [each for each in results if each[0].scene == scene]
        lines += _table(_TITLES[scene], calls, own)
    return "\n".join(lines)


def _table(title: str, calls: Mapping[str, int], results: list[tuple[Case, int]]) -> list[str]:
    lines = [f"## {title}", "", "| call | " + " | ".join(_WAYS) + " |", "|---" * 6 + "|"]
    for action in [each for each, times in calls.items() if times]:
        own = [(case, code) for case, code in results if case.action == action]
        fields = [_field([code for case, code in own if _way(case) == way]) for way in range(5)]
        lines.append(f"| {action} | " + " | ".join(fields) + " |")
    return [*lines, ""]


def _way(case: Case) -> int:
    from cloud.cases import is_common

    if case.how in _KILLS:
        return 0
    if case.how == "lost":
        return 1
    if case.after:
        return 4
    return 2 if is_common(case) else 3


def _field(codes: list[int]) -> str:
    words = {0: "whole", 3: "error", -9: "killed"}
    counts = Counter(words[code] for code in codes)
    return ", ".join(f"{count} {word}" for word, count in sorted(counts.items())) or "–"
