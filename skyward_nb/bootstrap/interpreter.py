"""An existing environment of a machine: whether ranks can run in it, and what it lacks."""

from __future__ import annotations

import json
import shlex
from typing import Any

from skyward_nb.bootstrap import requirements
from skyward_nb.bootstrap.remote_shell import ScriptResult
from skyward_nb.bootstrap.requirements import RUNNING, minor
from skyward_nb.bootstrap.setup_errors import last_words
from skyward_nb.words.errors import HostNotReady
from skyward_nb.words.image import Image
from skyward_nb.words.masking import masked_address

MARK = b"\nsky=interpreter\n"

_LOOK = """
import json, platform, re, sys
sys.stdout.write("\\nsky=interpreter\\n")
found = {"version": "%d.%d" % sys.version_info[:2], "kind": platform.python_implementation(), "lacks": []}
class Named:
    marker, extras = None, ()
    def __init__(self, text):
        if "://" in text or ";" in text:
            raise ValueError(text)
        self.name, self.specifier = re.match("[A-Za-z0-9._-]*", text).group(), self
    def contains(self, version, prereleases):
        return True
def look():
    from importlib import metadata, util
    found["pip"] = util.find_spec("pip") is not None
    for name in ("msgspec", "xxhash", "psutil"):
        try:
            __import__(name)
        except Exception as error:
            found["lacks"].append([name, "%s: %s" % (type(error).__name__, error)])
    broken = [name for name, _ in found["lacks"]]
    try:
        from packaging.requirements import Requirement
    except ImportError:
        try:
            from pip._vendor.packaging.requirements import Requirement
        except ImportError:
            Requirement = Named
    def has(wanted, known):
        if wanted.marker is not None and not wanted.marker.evaluate():
            return ""
        if wanted.name in broken:
            return ""
        try:
            there = metadata.distribution(wanted.name)
        except metadata.PackageNotFoundError:
            return "no " + wanted.name
        if not wanted.specifier.contains(there.version, prereleases=True):
            return wanted.name + " " + there.version
        for extra in sorted(wanted.extras):
            if (wanted.name, extra) in known:
                continue
            known.add((wanted.name, extra))
            for each in map(Requirement, there.requires or ()):
                mark = each.marker
                if mark and mark.evaluate({"extra": extra}) and not mark.evaluate({"extra": ""}):
                    each.marker = None
                    word = has(each, known)
                    if word:
                        return word
        return ""
    for text in WANTED:
        try:
            wanted = Requirement(text)
        except ValueError:
            continue
        word = has(wanted, set())
        if word:
            found["lacks"].append([text, word])
if found["version"] == MINOR and found["kind"] == "CPython":
    look()
sys.stdout.write(json.dumps(found) + "\\n")
"""


def question(image: Image) -> bytes:
    """A program that prints an interpreter's kind, and the requirements that it lacks.

    Raises `OptionError` for a requirement that no node can install.
    """
    wanted = [*RUNNING, *(requirements.wanted(text, exactly=False) for text in image.pip)]
    given = f"MINOR = {minor()!r}\nWANTED = {json.dumps(wanted)}\n"
    return (given + _LOOK).encode()


def check(host: str, path: str, ran: ScriptResult) -> None:
    """Raise `HostNotReady` for an interpreter that cannot run ranks; `ran` is its answer to `question`."""
    _, mark, said = ran.out.partition(MARK)
    if not mark or ran.code:
        raise HostNotReady(
            host,
            f"interpreter={path} does not run. Name a Python {minor()} that is there, or leave "
            "interpreter= out to have an environment made.",
            last_words(ran.err),
        )
    found: dict[str, Any] = json.loads(said.partition(b"\n")[0])
    if found["kind"] != "CPython" or found["version"] != minor():
        kind = "" if found["kind"] == "CPython" else f" ({found['kind']})"
        raise HostNotReady(
            host,
            f"interpreter={path} is Python {found['version']}{kind}, and the notebook or script runs "
            f"in {minor()}: code of one does not run in the other. Name an environment of Python "
            f"{minor()}, or leave interpreter= out to have one made.",
        )
    if found["lacks"]:
        names = [text for text, _ in found["lacks"]]
        # A module that could not be imported is named by the requirement that installs it.
        wanted = [
            next((text for text in RUNNING if text.startswith(f"{name}>")), name) for name in names
        ]
        packages = shlex.join(map(masked_address, wanted))
        python = shlex.quote(path)
        tool = f"{python} -m pip install" if found["pip"] else f"uv pip install --python {python}"
        words = ", ".join(masked_address(f"{name} ({word})") for name, word in found["lacks"])
        raise HostNotReady(
            host,
            f"interpreter={path} lacks what ranks need: {words}. Install it there:\n"
            f"  {tool} {packages}",
        )
