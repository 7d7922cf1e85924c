"""A pool's use of SkyPilot, as one value: `SkyPilotAccess`. Pure."""

from __future__ import annotations

import msgspec


class SkyPilotAccess(msgspec.Struct, frozen=True, kw_only=True):
    """Where SkyPilot is to rent: `infra` as it writes it (`gcp`, `gcp/us-central1`), None: wherever it is cheapest.

    `executable` is its program `sky`, None: that of PATH. `image_id` is an image of the cloud or `docker:IMAGE`,
    `disk` is in GB, `instance_type` the cloud's own name.
    """

    infra: str | None = None
    executable: str | None = None
    instance_type: str | None = None
    image_id: str | None = None
    disk: int | None = None
