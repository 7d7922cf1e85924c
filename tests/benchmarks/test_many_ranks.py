"""What a rank more costs, up to 1,000 of them: `make bench`."""

from __future__ import annotations

import contextlib
import io
import time
from statistics import median

import pytest
from contenders import shell

WARM, FAILS = 50, 5
FEW, MANY = 64, 1000


def seconds(line: str, code: str, rounds: int) -> float:
    """The median of so many cells; one that raises ends with that here."""
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        with contextlib.suppress(ZeroDivisionError):
            shell().run_cell_magic("sky_remote", line, code)
        took.append(time.perf_counter() - began)
    return median(took)


def of_ranks(count: int) -> dict[str, float]:
    """Seconds that a pool of so many ranks takes for each of four things."""
    ip, line = shell(), f"nodes={count} quiet"
    ip.run_line_magic("load_ext", "skyward_nb")
    with contextlib.redirect_stdout(io.StringIO()):
        up = seconds(line, "x = 1", 1)
        try:
            warm = seconds(line, "x = 1", WARM)
            fails = seconds(
                line, f"import os\n1 / (int(os.environ['RANK']) != {count // 2})", FAILS
            )
        finally:
            began = time.perf_counter()
            ip.run_line_magic("sky", "down")
    return {
        "up": up, "a warm cell": warm, "a rank raises": fails, "down": time.perf_counter() - began,
    }  # fmt: skip


@pytest.mark.timeout(600)
def test_the_cost_of_a_rank(figure):
    few, many = of_ranks(FEW), of_ranks(MANY)
    for what in few:
        ratio = (many[what] / MANY) / (few[what] / FEW)
        figure(
            f"{what}, {FEW} and {MANY} ranks",
            f"{1000 * few[what]:.0f} and {1000 * many[what]:.0f} ms: {ratio:.2f} × as much for each rank",
            "1.3 ×",
            ratio <= 1.3,
        )
