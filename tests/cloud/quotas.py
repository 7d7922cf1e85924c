"""How many vCPUs of each family an account may have, and what EC2 says past that.

docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html and
docs.aws.amazon.com/servicequotas/2019-06-24/apireference/API_GetServiceQuota.html.
"""

from __future__ import annotations

import re

from cloud.answers import Answer, Refused, said
from cloud.calls import Call

PLENTY = 2048.0
FAMILIES = {
    "Standard": ("L-1216C47A", "L-34B43A08", r"[acdhimrtz]\d.*"),
    "G and VT": ("L-DB2E81BA", "L-3819A6DF", r"(g\d|gr\d|vt\d).*"),
    "P5": ("L-417A185B", "L-C4BD4855", r"p5.*"),
    "P": ("L-417A185B", "L-7212CCBC", r"p\d.*"),
    "Trn": ("L-2C3B7624", "L-6B0D517C", r"trn\d.*"),
    "Inf": ("L-1945791B", "L-B5D1601B", r"inf\d.*"),
}
"""By name: the quota on demand, that of spot, and which types count in both."""


def code(kind: str, *, spot: bool) -> str:
    """The quota that a type counts in."""
    for on_demand, of_spot, pattern in FAMILIES.values():
        if re.fullmatch(pattern, kind):
            return of_spot if spot else on_demand
    return ""


class Quotas:
    """The quotas, in vCPUs by region and code; those that nobody set are large."""

    def __init__(self) -> None:
        self.limits: dict[tuple[str, str], float] = {}

    def limit(self, region: str, name: str) -> float:
        return self.limits.get((region, name), self.limits.get(("", name), PLENTY))

    def check(self, region: str, kind: str, *, spot: bool, now: int, more: int) -> None:
        """Raise what EC2 says where `more` vCPUs, `now` there, would be too many."""
        limit = self.limit(region, code(kind, spot=spot))
        if now + more <= limit:
            return
        if spot:
            raise Refused("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
        words = (
            f"You have requested more vCPU capacity than your current vCPU limit of {limit:.0f} allows "
            "for the instance bucket that the specified instance type belongs to. Please visit "
            "http://aws.amazon.com/contact-us/ec2-request to request an adjustment to this limit."
        )
        raise Refused("VcpuLimitExceeded", words)

    def one(self, call: Call) -> Answer:
        found = {each["QuotaCode"]: each for each in self._all(call.region)}
        asked = call.data.get("QuotaCode", "")
        if call.data.get("ServiceCode") != "ec2" or asked not in found:
            raise Refused("NoSuchResourceException", "The request failed because there is none.")
        return said(call, {"Quota": found[asked]})

    def all(self, call: Call) -> Answer:
        return said(call, {"Quotas": self._all(call.region)})

    def _all(self, region: str) -> list[dict[str, object]]:
        named = {}
        for family, (on_demand, of_spot, _) in FAMILIES.items():
            named.setdefault(on_demand, f"Running On-Demand {family} instances")
            named.setdefault(of_spot, f"All {family} Spot Instance Requests")
        return [
            {
                "ServiceCode": "ec2",
                "ServiceName": "Amazon Elastic Compute Cloud (Amazon EC2)",
                "QuotaArn": f"arn:aws:servicequotas:{region}:123456789012:ec2/{each}",
                "QuotaCode": each,
                "QuotaName": name,
                "Value": self.limit(region, each),
                "Unit": "None",
                "Adjustable": True,
                "GlobalQuota": False,
            }
            for each, name in named.items()
        ]
