"""A machine that was rented, as one value: `RunningInstance`. Pure."""

from __future__ import annotations

import msgspec


class RunningInstance(msgspec.Struct, frozen=True, kw_only=True):
    """One instance that runs; `price` in dollars an hour, `host_key` as a line of OpenSSH.

    `public` is where this side reaches it; without one, that is `private`, where the others do.
    """

    instance: str
    region: str
    zone: str
    type: str
    spot: bool = False
    price: float | None = None
    public: str | None = None
    private: str
    host_key: str

    @property
    def address(self) -> str:
        """Where it is logged in to."""
        return self.public or self.private
