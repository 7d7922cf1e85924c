"""A baked image, as AWS tells of it now, as plain data. Pure."""

from __future__ import annotations

import msgspec

from skyward_nb.words.offers import spell_dollars

_STATES = {"available": "ready", "pending": "being copied"}


class BakedImage(msgspec.Struct, frozen=True, kw_only=True):
    """An image that was made of a rented machine, the AMI `ami` of a `region`, and what it costs.

    `state` is EC2's word; `gigabytes` and `dollars` (of a month) are at most those of its snapshots, `progress` how far they are
    copied, `source` the machine.
    """

    name: str
    region: str
    ami: str
    state: str
    gigabytes: float
    dollars: float | None
    source: str = ""
    progress: str = ""

    def __str__(self) -> str:
        cost = "at a price that AWS did not tell"
        if self.dollars is not None:
            cost = f"at most {spell_dollars(self.dollars)} a month"
        going = f" ({self.progress})" if self.progress else ""
        state = f"{_STATES.get(self.state, self.state)}{going}"
        made = f", made of {self.source}" if self.source else ""
        return f"image {self.name} in {self.region}: {self.ami}, {state}, {self.gigabytes:.3g} GB {cost}{made}"
