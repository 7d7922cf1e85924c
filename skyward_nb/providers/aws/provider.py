"""Gives machines of EC2. What speaks to AWS, and SSH, is imported when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skyward_nb.providers.base import Tell
from skyward_nb.words.spec import PoolSpec

if TYPE_CHECKING:
    from skyward_nb.providers.aws.machine import AWSMachine
    from skyward_nb.words.offers import Offer


class AWSProvider:
    """Rents as many machines as a spec has nodes, and gives them back for certain."""

    name = "aws"
    shares_files = False

    def check(self, spec: PoolSpec) -> None:
        """Raise `OptionError` for an image that no machine could have."""
        from skyward_nb.bootstrap.needs import check_minor

        check_minor(spec.image)

    async def acquire(self, spec: PoolSpec, pool_id: str, tell: Tell) -> tuple[AWSMachine, ...]:
        """Rent machines and make them ready, all or none; raises a `SkyError`, with none left."""
        from skyward_nb.providers.aws.renting import rent

        return await rent(spec, pool_id, await self.offers(spec), tell)

    def find(self, spec: PoolSpec, pool_id: str) -> tuple[AWSMachine, ...]:
        """The machines of a pool that was made before; raises `AgentGone` where they were given back."""
        from skyward_nb.providers.aws.renting import find

        return find(spec, pool_id)

    async def offers(self, spec: PoolSpec) -> tuple[Offer, ...]:
        """What was quoted for a spec, in the order in which it is tried; raises what quoting raises."""
        from skyward_nb.providers.aws.quoting import quote_of

        return (await quote_of(spec)).offers
