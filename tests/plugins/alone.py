"""Code in which one rank of torch fails by itself."""

from __future__ import annotations

from pathlib import Path


def fails_alone(rank: int, word: Path) -> str:
    """This rank raises once another has begun a collective, which is noted in this file; the others wait in it."""
    return (
        "import os, time, torch, torch.distributed as dist\n"
        f"if dist.get_rank() == {rank}:\n"
        f"    while not os.path.exists({str(word)!r}): time.sleep(0.01)\n"
        "    raise ValueError('alone')\n"
        "begun = dist.all_reduce(torch.ones(1), async_op=True)\n"
        f"open({str(word)!r}, 'w').close()\n"
        "begun.wait()\n"
    )
