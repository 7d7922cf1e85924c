"""The results as a page of Markdown: faults and misuses, how often each was played, defects."""

from __future__ import annotations

from collections import Counter

from chaos.player import Played

_HEAD = """# Cells and faults by chance

Written by `make chaos`, which plays sequences of cells and faults for two hours (two side by side for one); `make test-all` plays
ten minutes.

A seed gives a sequence of ten steps: cells on two pools of three and two ranks, and what goes wrong while
they run, or between them. After each step the pool has to work, or to say why not and then to work, with the
values that the same cells give in plain IPython. No wait is longer than 15 s beyond what frameworks take to import. After
`down` no process, folder or value is left.

A pool's forge imports its framework by itself. An import that is cut short ends with its process, and the next start does it
again, no slower than the first: nothing of it is shared between pools.
"""


def summary(found: list[tuple[int, Played]]) -> str:
    """One line on all."""
    steps = sum(played.steps for _, played in found)
    faults = sum(sum(played.faults.values()) for _, played in found)
    minutes = sum(played.seconds for _, played in found) / 60
    defects = sum(bool(played.defect) for _, played in found)
    seeds = f"{found[0][0]} to {found[-1][0]}" if found else "none"
    return f"Seeds {seeds}: {len(found)} sequences in {minutes:.0f} minutes, {steps} steps, {faults} faults, {defects} defects."


def ground(words: str, commit: str, processors: int, loads: list[float]) -> str:
    """One line on what was played, and where."""
    busy = f" with a load of {min(loads):.0f} to {max(loads):.0f}" if loads else ""
    return f"`make chaos {words}` on {commit}, {processors} processors{busy}."


def written(found: list[tuple[int, Played]], where: str) -> str:
    """The page; `where` is the line on the ground."""
    faults, said = Counter[str](), Counter[str]()
    for _, played in found:
        faults += played.faults
        said += played.said
    lines = [_HEAD, where, "", summary(found), ""]
    lost = sum(played.replies_lost for _, played in found)
    longest = max((played.longest for _, played in found), default=0.0)
    lines += [f"The longest cell took {longest:.1f} s. {lost} interrupts cost the reply of a cell, which is ipykernel's.", ""]  # fmt: skip
    for title, counted in (("fault", faults), ("error that was raised", said)):
        lines += [f"| {title} | times |", "|---|---|"]
        lines += [f"| {name} | {count} |" for name, count in sorted(counted.items())] + [""]
    failed = [(seed, played) for seed, played in found if played.defect]
    lines += [f"- seed {seed}: {played.defect.partition(chr(10))[0]}" for seed, played in failed]
    return "\n".join(lines).rstrip() + "\n"
