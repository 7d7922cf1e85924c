"""Elastic IP addresses, as EC2 has them where moto is more lenient.

docs.aws.amazon.com/AWSEC2/latest/UserGuide/elastic-ip-addresses-eip.html: five for each region of an account, unless it
was given more. docs.aws.amazon.com/AWSEC2/latest/APIReference/API_ReleaseAddress.html: one that a machine has is
disassociated first, else `InvalidIPAddress.InUse`. API_AssociateAddress.html: of a machine with several interfaces one
is named, and DescribeAddresses has both; an address that is taken is not taken from there unless that is asked for.
"""

from __future__ import annotations

from collections.abc import Callable

from cloud.answers import Answer, Refused
from cloud.calls import Call
from cloud.stock import Stock

MOST = 5


class Addresses:
    """The addresses of all regions; `public` is that at which an instance's machine is reached."""

    def __init__(
        self, stock: Stock, forward: Callable[[Call], Answer], public: Callable[[str], str]
    ) -> None:
        self._stock = stock
        self._forward = forward
        self._public = public

    def allocate(self, call: Call) -> None:
        if len(self._stock.addresses(call.region)) >= MOST:
            words = "The maximum number of addresses has been reached."
            raise Refused("AddressLimitExceeded", words)

    def associate(self, call: Call) -> Answer:
        card = self._stock.card(call.region, call.form.get("NetworkInterfaceId", ""))
        if card is None:
            words = "You must specify the interface of an instance that has several"
            raise Refused("InvalidInstanceID", words)
        (own,) = self._stock.addresses(call.region, call.form["AllocationId"]) or [None]
        if own is None:
            words = f"The allocation ID '{call.form['AllocationId']}' does not exist"
            raise Refused("InvalidAllocationID.NotFound", words)
        may_move = call.form.get("AllowReassociation") == "true"
        if own.eni not in (None, card) and not may_move:
            words = f"resource {own.allocation_id} is already associated with {own.association_id}"
            raise Refused("Resource.AlreadyAssociated", words)
        answer = self._forward(call)
        if not answer.code:
            own.instance = card.instance
        if not answer.code and (there := self._public(card.instance.id)):
            own.public_ip = card.public_ip = there
        return answer

    def release(self, call: Call) -> None:
        for own in self._stock.addresses(call.region, call.form.get("AllocationId", "")):
            if own.eni is not None:
                words = f"Address {own.public_ip} is in use."
                raise Refused("InvalidIPAddress.InUse", words)
