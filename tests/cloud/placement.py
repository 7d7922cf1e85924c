"""Placement groups, which moto does not have.

docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreatePlacementGroup.html, and Delete and Describe.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

from cloud.answers import Answer, Refused, said
from cloud.calls import Call


@dataclass
class Group:
    """One placement group."""

    name: str
    strategy: str
    region: str
    tags: dict[str, str] = field(default_factory=dict)

    @property
    def id(self) -> str:
        digest = hashlib.sha256(f"{self.region} {self.name}".encode()).hexdigest()
        return f"pg-{digest[:17]}"

    def told(self) -> dict[str, object]:
        return {
            "groupName": self.name,
            "groupId": self.id,
            "strategy": self.strategy,
            "state": "available",
            "tagSet": [{"key": key, "value": value} for key, value in self.tags.items()],
        }

    def is_asked_for(self, filters: dict[str, list[str]]) -> bool:
        known = {"group-name": [self.name], "group-id": [self.id], "strategy": [self.strategy]}
        known |= {"state": ["available"], "tag-key": list(self.tags)}
        known |= {f"tag:{key}": [value] for key, value in self.tags.items()}
        return all(set(values) & set(known.get(key, ())) for key, values in filters.items())


class Placement:
    """The placement groups of all regions; `uses` says which of a region's groups have machines."""

    def __init__(self, uses: Callable[[str], set[str]]) -> None:
        self.groups: dict[tuple[str, str], Group] = {}
        self._uses = uses

    def create(self, call: Call) -> Answer:
        name = call.form.get("GroupName", "")
        if (call.region, name) in self.groups:
            words = f"The Placement Group '{name}' already exists."
            raise Refused("InvalidPlacementGroup.Duplicate", words)
        made = Group(name, call.form.get("Strategy", "cluster"), call.region)
        for asked in call.structs("TagSpecification"):
            for key in (
                each for each in asked if each.startswith("Tag.") and each.endswith(".Key")
            ):
                made.tags[asked[key]] = asked.get(f"{key.removesuffix('.Key')}.Value", "")
        self.groups[call.region, name] = made
        return said(call, {"placementGroup": made.told()})

    def delete(self, call: Call) -> Answer:
        name = call.form["GroupName"]
        self.check(call.region, name)
        if name in self._uses(call.region):
            words = f"The placement group '{name}' is in use and may not be deleted."
            raise Refused("InvalidPlacementGroup.InUse", words)
        del self.groups[call.region, name]
        return said(call, {"return": True})

    def describe(self, call: Call) -> Answer:
        names = call.several("GroupName")
        for name in names:
            self.check(call.region, name)
        found = [
            each.told()
            for (region, name), each in self.groups.items()
            if region == call.region
            and (not names or name in names)
            and each.is_asked_for(call.filters())
        ]
        return said(call, {"placementGroupSet": found})

    def check(self, region: str, name: str) -> None:
        """Raise what EC2 says of a group that does not exist."""
        if (region, name) not in self.groups:
            words = f"The Placement Group '{name}' is unknown."
            raise Refused("InvalidPlacementGroup.Unknown", words)
