"""SkyPilot's task files: which pool a task needs, what it runs on each node, and what of the file has no meaning here.

Source: https://docs.skypilot.co/en/latest/reference/yaml-spec.html. Pure but for the import of PyYAML, which reads YAML.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from skyward_nb.options.option_table import BY_NAME
from skyward_nb.words.errors import MissingDependency, OptionError
from skyward_nb.words.units import near_words

_OF_RESOURCES = {"accelerators": "accelerator", "cpus": "cpus", "memory": "memory"}
_KNOWN = {
    "name", "workdir", "num_nodes", "resources", "file_mounts", "setup", "run", "envs", "secrets",
    "service", "config", "volumes", "storage_mounts", "event_callback", "inputs", "outputs", "experimental", "pool",
}  # fmt: skip
_OBEYED = (
    "name",
    "workdir",
    "num_nodes",
    "resources",
    "file_mounts",
    "setup",
    "run",
    "envs",
    "secrets",
)
OVERRIDES = (
    "num-nodes",
    "gpus",
    "cpus",
    "memory",
    "infra",
    "workdir",
    "env",
    "secret",
    "use-spot",
    "no-use-spot",
)
"""Options of `sky launch` that may stand after the file."""


@dataclass(frozen=True)
class Task:
    """A task: `pool` has the texts of the pool's options by their names, `left_out` the keys that are not obeyed.

    `others` are pools that do where that one cannot be had. `mounts` has paths on nodes, and what is to be there: a
    path here, or an address in S3.
    """

    pool: dict[str, str]
    run: str
    setup: str = ""
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    workdir: str = ""
    name: str = ""
    left_out: tuple[str, ...] = ()
    others: tuple[dict[str, str], ...] = ()
    mounts: tuple[tuple[str, str], ...] = ()


def read_task(text: str, file: str, words: Sequence[str], environ: Mapping[str, str]) -> Task:
    """Read a task file, with the options of `sky launch` after it; raises `OptionError` with the line.

    Raises `MissingDependency` where PyYAML is not installed.
    """
    reader = _Reader(text, file)
    asked = dict(_overrides(words))
    top = reader.mapping((), "")
    for key in top:
        if key not in _KNOWN:
            raise reader.wrong((key,), f"a task has no {key!r}{near_words(key, _KNOWN)}")
    left = [key for key in top if key not in _OBEYED]
    more: dict[str, str] = {}
    if "num_nodes" in top:
        more["nodes"] = reader.option(("num_nodes",), "nodes", top["num_nodes"])
    for option, word in (
        ("nodes", "num-nodes"),
        ("accelerator", "gpus"),
        ("cpus", "cpus"),
        ("memory", "memory"),
    ):
        if word in asked:
            more[option] = _checked(word, option, asked[word][-1])
    more |= {"spot": "yes"} if "use-spot" in asked else {}
    more |= {"spot": "no"} if "no-use-spot" in asked else {}
    if "infra" in asked:
        more |= _infra(asked["infra"][-1], lambda why: OptionError("infra", f"--infra: {why}"))
    workdir = asked["workdir"][-1] if "workdir" in asked else top.get("workdir", "")
    if not isinstance(workdir, str):
        left, workdir = [*left, "workdir"], ""  # that of a repository
    pool, *others = dict.fromkeys(
        tuple(sorted({**each, **more}.items())) for each in reader.resources(left)
    )
    return Task(
        pool=dict(pool),
        others=tuple(map(dict, others)),
        mounts=tuple(reader.mounts(left)),
        run=reader.script("run"),
        setup=reader.script("setup"),
        env=reader.variables(asked, environ),
        workdir=workdir,
        name=str(top.get("name") or ""),
        left_out=tuple(left),
    )


def _overrides(words: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    found: dict[str, list[str]] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        key, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or key not in OVERRIDES:
            near = near_words(key, OVERRIDES)
            has = ", ".join(f"--{each}" for each in OVERRIDES)
            raise OptionError(key, f"{word} after a task file{near or f': it takes {has}'}")
        if key not in ("use-spot", "no-use-spot") and not equals:
            if not rest:
                raise OptionError(key, f"--{key} needs a value: --{key}=...")
            value = rest.pop(0)
        found.setdefault(key, []).append(value)
    yield from found.items()


def _checked(said: str, option: str, value: str) -> str:
    try:
        BY_NAME[option].value(value)
    except OptionError as error:
        raise OptionError(said, f"--{said}={value}: {error.message}") from None
    return value


def _infra(text: str, wrong: Any) -> dict[str, str]:
    """`aws`, `aws/us-east-1`, `aws/us-east-1/us-east-1a`; other clouds are SkyPilot's. Raises what `wrong` makes of a text."""
    provider, _, rest = text.partition("/")
    region, _, zone = rest.partition("/")
    if provider not in ("aws", "local"):
        try:
            BY_NAME["infra"].value(text)
        except OptionError as error:
            raise wrong(f"{error.message}; machines of yours are hosts=a,b") from None
        return {"provider": "sky", "infra": text}
    given = {"region": region, "zones": zone}
    return {"provider": provider} | {
        key: each for key, each in given.items() if each not in ("", "*")
    }


class _Reader:
    """A YAML document whose values know their lines."""

    def __init__(self, text: str, file: str) -> None:
        try:
            self._yaml: Any = importlib.import_module("yaml")
        except ImportError:
            raise MissingDependency("pyyaml", "a task file", "pip install pyyaml") from None
        self._file = file
        try:
            loader = self._yaml.SafeLoader(text)
            node = loader.get_single_node()
            self._value = loader.construct_document(node) if node is not None else {}
        except self._yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            line = f", line {mark.line + 1}" if mark is not None else ""
            why = getattr(error, "problem", None) or str(error)
            tab = " (indent with spaces, not tabs)" if "\\t" in repr(why) else ""
            raise OptionError("script", f"{file}{line}: {why}{tab}") from None
        except (ValueError, OverflowError) as error:  # a date or a number that is none
            raise OptionError("script", f"{file}: {error}") from None
        self._lines: dict[tuple[str, ...], int] = {(): 1}
        self._note(node, ())

    def _note(self, node: Any, path: tuple[str, ...]) -> None:
        if isinstance(node, self._yaml.MappingNode):
            for key, value in node.value:
                inner = (*path, str(key.value))
                self._lines[inner] = key.start_mark.line + 1
                self._note(value, inner)

    def wrong(self, path: tuple[str, ...], why: str) -> OptionError:
        """The error for a value."""
        return OptionError("script", f"{self._file}, line {self._lines.get(path, 1)}: {why}")

    def mapping(self, path: tuple[str, ...], what: str) -> dict[str, Any]:
        """The mapping at a path, empty where there is none."""
        value: Any = self._value
        for part in path:
            value = value.get(part)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self.wrong(path, f"{what or 'a task file'} is a mapping of keys and values")
        return {str(key): each for key, each in value.items()}

    def script(self, key: str) -> str:
        """The text of `run` or `setup`."""
        value = self.mapping((), "").get(key)
        if value is not None and not isinstance(value, str):
            raise self.wrong((key,), f"{key} is text: write {key}: | and the lines below it")
        return value or ""

    def option(self, path: tuple[str, ...], option: str, value: object) -> str:
        """A value as the text of an option."""
        text = str(value)
        try:
            BY_NAME[option].value(text)
        except OptionError as error:
            raise self.wrong(path, error.message) from None
        return text

    def resources(self, left: list[str]) -> list[dict[str, str]]:
        """The options of each pool that `resources` allow; what is not obeyed is added to `left`."""
        given = self.mapping(("resources",), "resources")
        first = "any_of" if "any_of" in given else "ordered"
        choices: Any = given.pop(first, None) or [{}]
        if not isinstance(choices, list) or not all(isinstance(each, dict) for each in choices):
            raise self.wrong(("resources", first), f"{first} is a list of resources")
        found: list[dict[str, str]] = []
        for choice in choices:
            pools: list[dict[str, str]] = [{}]
            for key, value in {**given, **choice}.items():
                if value is not None:
                    ways = self._resource(str(key), value, left)
                    pools = [pool | way for way in ways for pool in pools]
            found += pools
        left[:] = dict.fromkeys(left)
        return found

    def mounts(self, left: list[str]) -> Iterator[tuple[str, str]]:
        """Paths on nodes, and what is there; what is in other stores is added to `left`."""
        for target, value in self.mapping(("file_mounts",), "file_mounts").items():
            source = value.get("source") if isinstance(value, dict) else value
            if not isinstance(source, str):
                left.append(f"file_mounts.{target}")
            elif "://" in source and not source.startswith("s3://"):
                left.append(f"file_mounts.{target} ({source.partition('://')[0]}://)")
            else:
                yield target, source

    def _resource(self, key: str, value: Any, left: list[str]) -> list[dict[str, str]]:
        """The options that a resource means, one for each way to meet it."""
        path = ("resources", key)
        if key == "infra":
            return [_infra(str(value), lambda why: self.wrong(path, f"infra: {why}"))]
        if key == "use_spot":
            return [{"spot": "yes" if value else "no"}]
        if key not in _OF_RESOURCES:
            left.append(f"resources.{key}")
            return [{}]
        if isinstance(value, dict):
            value = [f"{name}:{count}" for name, count in value.items()]
        values: list[Any] = value or [""] if isinstance(value, list) else [value]
        option = _OF_RESOURCES[key]
        return [{option: self.option(path, option, each)} for each in values]

    def variables(
        self, asked: Mapping[str, list[str]], environ: Mapping[str, str]
    ) -> dict[str, str]:
        """`envs` and `secrets`, with those after the file; one without a value is that of this process."""
        found: dict[str, str] = {}
        for key, word in (("envs", "env"), ("secrets", "secret")):
            pairs = (each.partition("=") for each in asked.get(word, ()))
            said = {name: value for name, _, value in pairs}
            for name, value in (self.mapping((key,), key) | said).items():
                given = (
                    environ.get(name) if value is None or (value == "" and name in said) else value
                )
                if given is None:
                    raise self.wrong(
                        (key, name), f"{name} has no value: --{word} {name}=... after the file"
                    )
                found[name] = str(given)
        return found
