"""A command line of `torchrun`: its own options, of which a few say what pool is needed. Pure; torch is not imported.

Source of the options: `torch.distributed.run.get_args_parser`, with which a test compares this table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from skyward_nb.options.option_line import parse_words
from skyward_nb.options.option_table import BY_NAME
from skyward_nb.words.errors import OptionError
from skyward_nb.words.units import near_words

VALUED = (
    "nnodes", "nproc-per-node", "rdzv-backend", "rdzv-endpoint", "rdzv-id", "rdzv-conf", "max-restarts",
    "monitor-interval", "start-method", "event-log-handler", "role", "log-dir", "redirects", "tee",
    "local-ranks-filter", "duplicate-stdout-filters", "duplicate-stderr-filters", "node-rank", "master-addr",
    "master-port", "local-addr", "logs-specs", "numa-binding", "signals-to-handle", "shutdown-timeout",
)  # fmt: skip
"""The options that take a value."""

FLAGS = ("standalone", "module", "no-python", "run-path", "virtual-local-rank")
SHORT = {"m": "module", "r": "redirects", "t": "tee"}
_WHOLE = ("max-restarts", "node-rank", "master-port", "shutdown-timeout")
FORM = "[pool option ...] [torchrun option ...] FILE [ARG ...]"


@dataclass(frozen=True)
class TorchrunLine:
    """What a line says: torchrun's `options` (a flag's value is ""), the script, and its arguments.

    `nodes` are the fewest and the most of `--nnodes`, `pool_words` the options that are not torchrun's.
    """

    options: dict[str, str]
    nodes: tuple[int, int]
    script: str
    arguments: tuple[str, ...]
    pool_words: tuple[str, ...] = ()

    def words(self) -> list[str]:
        """The options as torchrun takes them."""
        return [
            f"--{name}={value}" if value else f"--{name}" for name, value in self.options.items()
        ]


def read_torchrun(words: Sequence[str], program: str) -> TorchrunLine:
    """Read the words after `torchrun`: options of a pool as `key=value`, torchrun's own, script, arguments.

    Raises `OptionError` for an option that neither has, for a value that is none, and where no script is named.
    """
    rest = list(words)
    options: dict[str, str] = {}
    pool: list[str] = []
    while rest and (rest[0].startswith("-") or _is_pools(rest[0])):
        word = rest.pop(0)
        if word == "--":
            break
        if not word.startswith("-"):
            pool.append(word)
            continue
        name, value = _option(word)
        if name in FLAGS:
            if value is not None:
                raise OptionError(name, f"--{name} takes no value")
            options[name] = ""
            continue
        if value is None:
            if not rest:
                raise OptionError(name, f"--{name} needs a value: --{name}=...")
            value = rest.pop(0)
        _check(name, value)
        options[name] = value
    if not rest:
        raise OptionError("script", f"a script is missing: {program} {FORM}")
    parse_words(pool, scopes=("pool", "cell", "verb"), words=0)
    return TorchrunLine(options, _nodes(options), rest[0], tuple(rest[1:]), tuple(pool))


def _is_pools(word: str) -> bool:
    key, equals, _ = word.partition("=")
    option = BY_NAME.get(key)
    return option is not None and (bool(equals) or option.is_flag)


def _option(word: str) -> tuple[str, str | None]:
    """(name, value) of a word as argparse reads it: `--nnodes=2`, `--max_restarts`, `-r3`, `--nproc 2`."""
    if not word.startswith("--"):
        name, value = SHORT.get(word[1:2]), word[2:].removeprefix("=") or None
        if name is None:
            raise OptionError(word, f"torchrun has no option {word[:2]}: it has -m, -r and -t")
        return name, value
    key, equals, text = word[2:].partition("=")
    key = key.replace("_", "-")
    known = (*VALUED, *FLAGS)
    found = [key] if key in known else [each for each in known if each.startswith(key)]
    if len(found) == 1:
        return found[0], text if equals else None
    if found:
        raise OptionError(key, f"--{key} may be {', '.join(f'--{each}' for each in found)}")
    if key.replace("-", "_") in BY_NAME:
        raise OptionError(
            key, f"torchrun has no option --{key}; for the pool, write {key.replace('-', '_')}=..."
        )
    near = near_words(key, known) or ": torchrun --help lists its options"
    raise OptionError(key, f"torchrun has no option --{key}{near}")


def _check(name: str, value: str) -> None:
    """Raise `OptionError` for a value that torchrun would refuse on every node."""
    if name in _WHOLE and not value.isdecimal():
        raise OptionError(name, f"--{name}={value}: write a whole number")
    if name == "nproc-per-node" and not (
        (value.isdecimal() and int(value)) or value in ("auto", "cpu", "gpu", "xpu")
    ):
        raise OptionError(name, f"--{name}={value}: write a number, auto, cpu, gpu or xpu")
    if name == "start-method" and value not in ("spawn", "fork", "forkserver"):
        raise OptionError(name, f"--{name}={value}: write spawn, fork or forkserver")


def _nodes(options: dict[str, str]) -> tuple[int, int]:
    text = options.get("nnodes", "1")
    fewest, colon, most = text.partition(":")
    if not (fewest.isdecimal() and (most.isdecimal() if colon else True)):
        raise OptionError("nnodes", f"--nnodes={text}: write a number, or MIN:MAX")
    found = int(fewest), int(most or fewest)
    if not 0 < found[0] <= found[1]:
        raise OptionError("nnodes", f"--nnodes={text}: at least 1, and MIN not above MAX")
    if "standalone" in options and found[1] > 1:
        raise OptionError("standalone", f"--standalone is for one node: leave out --nnodes={text}")
    return found
