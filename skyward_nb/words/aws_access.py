"""What of AWS a pool may use, and how, as one value: `AWSAccess`. Pure."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Placement = Literal["auto", "no"]
OnPreempt = Literal["tell", "replace"]
"""What is done about a machine that EC2 takes back: it is told, or another one is rented, too."""


class AWSAccess(msgspec.Struct, frozen=True, kw_only=True):
    """Where machines may be rented, and what of the account they get; what is None, AWS or we choose.

    `regions` are others that a pool may go to, `zones` the only ones it may be in; `user` is who logs in
    to the `ami`, `profile` one of AWS's configuration, `disk` GB of gp3. With `placement` "auto" nodes
    are put side by side where their type can be. `endpoint` is another server that speaks EC2.
    """

    region: str | None = None
    regions: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()
    instance_type: str | None = None
    ami: str | None = None
    user: str | None = None
    subnet: str | None = None
    security_group: str | None = None
    profile: str | None = None
    placement: Placement = "auto"
    disk: int = 100
    endpoint: str | None = None

    def having(self, **changes: Any) -> AWSAccess:
        """This one with some of it changed."""
        return msgspec.structs.replace(self, **changes)
