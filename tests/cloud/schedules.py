"""One-time schedules of EventBridge Scheduler that call EC2: docs.aws.amazon.com/scheduler/latest/APIReference.

API_CreateSchedule.html, API_UpdateSchedule.html and API_DeleteSchedule.html; what a target may be:
docs.aws.amazon.com/scheduler/latest/UserGuide/managing-targets-universal.html. A schedule that has called its target is
removed where it says so: .../UserGuide/managing-schedule-delete.html.
"""

from __future__ import annotations

import json
import re
from typing import Any

from cloud.answers import Answer, Refused, said
from cloud.calls import Call

ROLE = "skyward-nb-warm"
_TARGET = "arn:aws:scheduler:::aws-sdk:ec2:terminateInstances"


class Schedules:
    """The schedules of all regions; `roles` are those that the service may assume."""

    def __init__(self) -> None:
        self.roles = {ROLE}
        self.known: dict[tuple[str, str], dict[str, Any]] = {}

    def create(self, call: Call) -> Answer:
        key = call.region, call.data["Name"]
        if key in self.known:
            raise Refused("ConflictException", f"Schedule {key[1]} already exists.")
        self._set(call)
        return self._arn(call)

    def update(self, call: Call) -> Answer:
        self._find(call)
        self._set(call)
        return self._arn(call)

    def delete(self, call: Call) -> Answer:
        self._find(call)
        del self.known[call.region, call.data["Name"]]
        return said(call, {})

    def due(self) -> list[tuple[str, list[str]]]:
        """The machines that schedules end which are on: all of them go off, and are removed."""
        found = []
        for key, own in list(self.known.items()):
            if own["State"] == "ENABLED":
                found.append((key[0], json.loads(own["Target"]["Input"])["InstanceIds"]))
                assert own["ActionAfterCompletion"] == "DELETE"
                del self.known[key]
        return found

    def _find(self, call: Call) -> None:
        if (call.region, call.data["Name"]) not in self.known:
            words = f"Schedule {call.data['Name']} does not exist."
            raise Refused("ResourceNotFoundException", words)

    def _set(self, call: Call) -> None:
        own, target = call.data, call.data["Target"]
        if not re.fullmatch(r"[0-9a-zA-Z_.-]{1,64}", own["Name"]):
            raise Refused("ValidationException", f"{own['Name']} is no name")
        if not re.fullmatch(r"at\(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\)", own["ScheduleExpression"]):
            raise Refused("ValidationException", "Invalid Schedule Expression.")
        if target["Arn"] != _TARGET:
            raise Refused("ValidationException", f"Provided Arn is not in correct format: {target}")
        if target["RoleArn"].rpartition("/")[2] not in self.roles:
            words = "The execution role you provide must allow AWS EventBridge Scheduler to assume the role."
            raise Refused("ValidationException", words)
        self.known[call.region, own["Name"]] = own

    @staticmethod
    def _arn(call: Call) -> Answer:
        arn = f"arn:aws:scheduler:{call.region}:123456789012:schedule/default/{call.data['Name']}"
        return said(call, {"ScheduleArn": arn})
