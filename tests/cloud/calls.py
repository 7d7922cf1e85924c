"""A request to the API of AWS, read: which service, where, which action, with what.

EC2 and STS take a form (docs.aws.amazon.com/AWSEC2/latest/APIReference/Query-Requests.html), the
others JSON with the action in a header. Service and region are those that the request is signed for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any
from urllib.parse import parse_qsl, urlencode

_SCHEDULER = {"POST": "Create", "PUT": "Update", "DELETE": "Delete", "GET": "Get"}
_SCOPE = re.compile(r"Credential=([^/]+)/\d+/([^/]+)/([^/]+)/aws4_request")


@dataclass
class Call:
    """One call of the API; `form` holds what EC2 and STS are asked, `data` what the others are."""

    service: str
    region: str
    action: str
    form: dict[str, str] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    key: str = ""
    """Who signed it."""

    @property
    def is_json(self) -> bool:
        return self.service not in ("ec2", "sts")

    def several(self, name: str) -> list[str]:
        """The values of a list: `InstanceId.1`, `InstanceId.2`, …"""
        return [self.form[key] for key in _in_order(self.form, name) if "." not in _rest(key, name)]

    def structs(self, name: str) -> list[dict[str, str]]:
        """The members of a list of structures, each with the names below it."""
        found: dict[str, dict[str, str]] = {}
        for key in _in_order(self.form, name):
            number, _, rest = _rest(key, name).partition(".")
            found.setdefault(number, {})[rest] = self.form[key]
        return list(found.values())

    def filters(self) -> dict[str, list[str]]:
        """What is filtered for, by name."""
        return {
            each["Name"]: [value for key, value in each.items() if key.startswith("Value")]
            for each in self.structs("Filter")
        }

    def body(self) -> bytes:
        """The request's body, as it is now."""
        text = json.dumps(self.data) if self.is_json else urlencode(self.form)
        return text.encode()


def _rest(key: str, name: str) -> str:
    return key[len(name) + 1 :]


def _in_order(form: Mapping[str, str], name: str) -> list[str]:
    found = [key for key in form if re.match(rf"{re.escape(name)}\.\d+(\.|$)", key)]
    return sorted(found, key=lambda key: int(_rest(key, name).split(".")[0]))


def read(environ: dict[str, Any]) -> Call:
    """The call that a request is; its body can be read again."""
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    environ["wsgi.input"] = BytesIO(body)
    signed = _SCOPE.search(environ.get("HTTP_AUTHORIZATION", ""))
    key, region, service = signed.groups() if signed else ("", "", "")
    if service == "scheduler":
        # docs.aws.amazon.com/scheduler/latest/APIReference: the action is a method, the name is in the path.
        action = f"{_SCHEDULER[environ['REQUEST_METHOD']]}Schedule"
        name = environ["PATH_INFO"].rpartition("/")[2]
        data = {**json.loads(body or b"{}"), "Name": name}
        return Call(service, region, action, data=data, key=key)
    target = environ.get("HTTP_X_AMZ_TARGET", "")
    if target:
        action = target.rpartition(".")[2]
        return Call(service, region, action, data=json.loads(body or b"{}"), key=key)
    form = dict(parse_qsl(body.decode(), keep_blank_values=True))
    return Call(service, region, form.get("Action", ""), form=form, key=key)
