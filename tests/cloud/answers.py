"""What the API of AWS answers, as it is written on the wire: XML of EC2 and STS, JSON of the others."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from cloud.calls import Call

_NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"
_ID = "7a62c49f-347e-4fc4-9331-6e8eEXAMPLE"
_STATUS = {
    "AuthFailure": 401,
    "DryRunOperation": 412,
    "UnauthorizedOperation": 403,
    "AccessDeniedException": 400,
    "InsufficientCapacity": 500,
    "InsufficientHostCapacity": 500,
    "InsufficientInstanceCapacity": 500,
    "InsufficientAddressCapacity": 500,
    "InternalError": 500,
    "InternalFailure": 500,
    "InternalServerError": 500,
    "RequestLimitExceeded": 503,
    "ServiceUnavailable": 503,
    "Unavailable": 503,
}
"""All else is 400: docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html."""


class Refused(Exception):
    """The API says no: a code, and words for people."""

    def __init__(self, code: str, words: str) -> None:
        super().__init__(f"{code}: {words}")
        self.code = code
        self.words = words


@dataclass(frozen=True)
class Answer:
    """A response."""

    status: int
    body: bytes
    kind: str = "text/xml;charset=UTF-8"

    @property
    def code(self) -> str:
        """The error's code; "" where it is none."""
        if self.status < 400:
            return ""
        if self.kind.startswith("application/x-amz-json"):
            return str(json.loads(self.body).get("__type", ""))
        found = next((each for each in self.tree().iter() if tag(each) == "Code"), None)
        return "" if found is None else found.text or ""

    def tree(self) -> ElementTree.Element:
        return ElementTree.fromstring(self.body)


def tag(element: ElementTree.Element) -> str:
    """An element's name without its namespace."""
    return element.tag.rpartition("}")[2]


def _xml(name: str, value: object) -> str:
    if isinstance(value, Mapping):
        inner = "".join(_xml(key, each) for key, each in value.items())
    elif isinstance(value, Sequence) and not isinstance(value, str):
        inner = "".join(_xml("item", each) for each in value)
    else:
        inner = escape(str(value).lower() if isinstance(value, bool) else str(value))
    return f"<{name}>{inner}</{name}>"


def said(call: Call, values: Mapping[str, Any]) -> Answer:
    """That a call went well, with these values."""
    if call.is_json:
        return Answer(200, json.dumps(values).encode(), "application/x-amz-json-1.1")
    inner = _xml("requestId", _ID) + "".join(_xml(key, each) for key, each in values.items())
    text = f'<{call.action}Response xmlns="{_NAMESPACE}">{inner}</{call.action}Response>'
    return Answer(200, text.encode())


def refusal(call: Call, no: Refused) -> Answer:
    """That it did not."""
    status = _STATUS.get(no.code, 400)
    if call.is_json:
        text = json.dumps({"__type": no.code, "message": no.words})
        return Answer(status, text.encode(), "application/x-amz-json-1.1")
    error = {"Code": no.code, "Message": no.words}
    if call.service == "sts":
        text = _xml("ErrorResponse", {"Error": {"Type": "Sender", **error}, "RequestId": _ID})
    else:
        text = _xml("Response", {"Errors": {"Error": error}, "RequestID": _ID})
    return Answer(status, text.encode())


def rewritten(answer: Answer, tree: ElementTree.Element) -> Answer:
    """The same answer with a changed tree."""
    return Answer(answer.status, ElementTree.tostring(tree), answer.kind)
