"""The provider of EC2 machines; boto3 and asyncssh are imported when they are first used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from skyward_nb.providers.far.far_provider import FarProvider
from skyward_nb.providers.provider_protocol import Machine, Readied, ReplacementRequest, Tell
from skyward_nb.words.spec import PoolSpec

if TYPE_CHECKING:
    from skyward_nb.words.offers import Bill, Offer


class AWSProvider(FarProvider):
    """Rents as many machines as a spec has nodes, and ends them for certain."""

    name = "aws"

    def check(self, spec: PoolSpec) -> None:
        """Raise `OptionError` for an image that no machine can have, or a way to machines that this one lacks."""
        from skyward_nb.providers.aws.callers import check_way

        super().check(spec)
        check_way(spec)

    async def acquire(self, spec: PoolSpec, pool_id: str, tell: Tell) -> tuple[Machine, ...]:
        """Rent machines and make them ready, all or none; raises a `SkyError`, with none left."""
        from skyward_nb.providers.aws.provisioning import rent

        return await rent(spec, pool_id, await self.offers(spec), tell)

    def find(self, spec: PoolSpec, pool_id: str) -> tuple[Machine, ...]:
        """The machines of an existing pool; raises `AgentGone` if they were ended."""
        from skyward_nb.providers.aws.provisioning import find

        return find(spec, pool_id)

    async def replace(
        self, spec: PoolSpec, pool_id: str, lack: ReplacementRequest, readied: Readied, tell: Tell
    ) -> tuple[Machine, ...]:
        """Replace reclaimed machines by new ones, all or none, and end the old ones."""
        from skyward_nb.providers.aws.replacement import replaced

        return await replaced(spec, pool_id, lack, readied, tell)

    def conducted(self, pool_id: str) -> None:
        """Note it in the pool's record: no sweep takes the pool for lost while this process lives."""
        from skyward_nb.providers.aws.replacement import conducted

        conducted(pool_id)

    def left(self, pool_id: str) -> None:
        """Note it in the pool's record: without machines it is lost from now on."""
        from skyward_nb.providers.aws.replacement import left

        left(pool_id)

    def cheaper(self, pool_id: str, lost: Sequence[Machine], bill: Bill) -> Bill:
        """The bill of a pool from now on without these machines."""
        from skyward_nb.providers.aws.replacement import cheaper

        return cheaper(pool_id, lost, bill)

    async def offers(self, spec: PoolSpec) -> tuple[Offer, ...]:
        """The quoted offers for a spec, in their order; raises what `quote_of` raises."""
        from skyward_nb.providers.aws.quoting import launch_quote

        return (await launch_quote(spec)).offers
