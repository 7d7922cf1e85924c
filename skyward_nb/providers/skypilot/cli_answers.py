"""What `sky` prints, read: its plans, the state of a cluster, its errors. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec

from skyward_nb.words.decoding import from_json

_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|[\r\x08]")
_BETWEEN = re.compile(r"\s{2,}")
_TABLE = re.compile(r"^[\s─━│\-+=]*$")
_CANCEL = re.compile(r"sky api cancel ([0-9a-f\-]{6,})")
_COLUMNS = ("INFRA", "INSTANCE", "COST ($)")


class ClusterState(msgspec.Struct, frozen=True):
    """What `sky status -o json` says of a cluster, as far as it matters here."""

    name: str
    status: str
    resources_str: str | None = None
    init_status_reason: str | None = None
    last_event: str | None = None


@dataclass(frozen=True)
class LaunchPlan:
    """What SkyPilot chose: where, which machines, and the dollars an hour of all; None where it has no price."""

    infra: str
    instance: str
    cpus: str
    memory: str
    dollars: float | None


class NoAnswer(ValueError):
    """What `sky` printed is not what it should have printed."""


def plain(text: str) -> str:
    """A text of `sky` without colours and other orders to a terminal."""
    return _COLOURS.sub("", text)


def chosen_plan(text: str) -> LaunchPlan | None:
    """The plan that the last table of `text` marks as chosen; None if there is none."""
    found, heads = None, list[str]()
    for line in plain(text).splitlines():
        parts = _BETWEEN.split(line.strip())
        if all(column in parts for column in _COLUMNS):
            heads, found = parts, None
        elif heads and found is None and ("✔" in line or "✓" in line):
            values = dict(zip(heads, parts, strict=False))
            found = LaunchPlan(
                infra=values.get("INFRA", ""),
                instance=values.get("INSTANCE", ""),
                cpus=values.get("vCPUs", ""),
                memory=values.get("Mem(GB)", ""),
                dollars=_dollars(values.get("COST ($)", "")),
            )
    return found


def _dollars(text: str) -> float | None:
    try:
        return float(text.replace(",", "").lstrip("$"))
    except ValueError:
        return None


def cluster_state(out: str, name: str) -> ClusterState | None:
    """The state of a cluster in an answer of `sky status -o json`; None if there is no such cluster.

    Raises `NoAnswer` for anything but a list of clusters.
    """
    text = plain(out)
    start = re.search(r"^\[", text, re.MULTILINE)
    try:
        if start is None:
            raise msgspec.DecodeError("no list")
        known = from_json(text[start.start() :].strip(), list[ClusterState])
    except msgspec.MsgspecError:
        raise NoAnswer(last_words(out) or "it said nothing") from None
    return next((each for each in known if each.name == name), None)


def progress(line: str) -> str:
    """What a line of `sky launch` says of its progress; "" for tables and empty lines."""
    text = plain(line).strip().lstrip("└─├│⚙︎✓×🚀📋🎉 ").strip()
    is_table = _TABLE.match(text) is not None or len(_BETWEEN.split(text)) > 3
    return "" if is_table or text.startswith(("Use ", "To ", "sky ", "ssh ")) else text


def last_words(text: str, most: int = 4) -> str:
    """The end of what `sky` printed, without tables and hints."""
    lines = [said for line in text.splitlines() if (said := progress(line))]
    return "\n".join(lines[-most:])


def request_id(text: str) -> str | None:
    """The id by which a request that goes on can be cancelled, if the text has one."""
    found = _CANCEL.search(plain(text))
    return found[1] if found else None


def why_gone(state: ClusterState | None, name: str) -> str:
    """Why a cluster can be used no more, in words; "" if it can."""
    if state is None:
        return f"SkyPilot has no cluster {name} any more: it was taken down"
    if state.status == "UP":
        return ""
    why = state.init_status_reason or state.last_event
    words = {
        "STOPPED": "it is stopped",
        "INIT": "one of its machines is gone or unwell (spot machines are taken back so)",
    }
    said = words.get(state.status, f"SkyPilot calls it {state.status}")
    return f"cluster {name}: {said}{f': {why}' if why else ''}"


_ADVICE = (
    ("Cloud access is not set up", "`sky check` says what each cloud lacks"),
    (
        "Max retries exceeded",
        "SkyPilot's server fetches catalogues of the clouds from the internet, and needs a way there",
    ),
    ("Catalog does not contain", "`sky gpus list` lists accelerators and where they are"),
    (
        "No resource satisfying",
        "`sky gpus list` lists accelerators and where they are; infra= and cpus= narrow the choice",
    ),
    ("not enabled", "`sky check` says what each cloud lacks"),
    ("quota", "ask the cloud for quota, or name another infra="),
    ("Failed to acquire resources in all", "another infra=, accelerator=, or spot=no"),
)


def advised(words: str) -> str:
    """SkyPilot's words, and what to type next."""
    advice = next((advice for form, advice in _ADVICE if form.lower() in words.lower()), "")
    return f"{words.rstrip('.')}. {advice[:1].upper()}{advice[1:]}" if advice else words
