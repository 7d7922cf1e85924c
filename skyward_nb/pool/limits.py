"""The limits of a pool, its time (`ttl`) and its money (`max_cost`), and so when no other machine is rented for it.

Pure; times in seconds since 1970.
"""

from __future__ import annotations

from dataclasses import dataclass

from skyward_nb.words.offers import Bill


@dataclass(frozen=True)
class Limits:
    """What a pool may use: `ttl` seconds from `started` on, None if not yet, and what its `bill` allows."""

    ttl: float | None
    started: float | None
    bill: Bill | None

    def seconds_left(self, now: float) -> float | None:
        """The rest of `ttl`; None without one."""
        if self.ttl is None or self.started is None:
            return self.ttl
        return self.ttl - (now - self.started)

    def overspent(self, now: float) -> tuple[float, float] | None:
        """`max_cost` and the dollars that were spent, once the one has reached the other; None before."""
        if self.bill is None or self.bill.max_cost is None:
            return None
        spent = self.bill.spent(now)
        if spent is None or spent < self.bill.max_cost:
            return None
        return self.bill.max_cost, spent

    def ended_by_money(self, now: float) -> tuple[float, float] | None:
        """`max_cost` and the dollars that were spent, if machines that are gone by now ended for it."""
        bill = self.bill
        if bill is None or bill.max_cost is None or not bill.is_over(now):
            return None
        return bill.max_cost, bill.spent(now) or 0.0

    def latest_end(self, now: float) -> float:
        """When machines that are gone by `now` had ended at the latest."""
        by_time = None if self.ttl is None or self.started is None else self.started + self.ttl
        by_money = None if self.bill is None else self.bill.ends()
        return min(each for each in (now, by_time, by_money) if each is not None)

    def why_over(self, now: float) -> str:
        """Why nothing more may be rented, in words, or ""."""
        left = self.seconds_left(now)
        if left is not None and left <= 0:
            return f"its time is over (ttl={self.ttl:g} s)"
        # Machines end a little before the money does, and cost nothing from then on.
        over = self.overspent(now) or self.ended_by_money(now)
        return f"it has cost ${over[1]:.2f} of max_cost={over[0]:g}" if over else ""
