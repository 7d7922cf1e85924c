"""`skyward-nb`: this user's pools at a terminal, and scripts on them.

It parses arguments, calls functions of `reports` and prints their results: nothing is decided here.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Sequence

from skyward_nb.cli.phrases import at_terminal
from skyward_nb.system.end_signals import handled_by
from skyward_nb.words.errors import OptionError, SkyError

FAILED, WRONG, INTERRUPTED = 1, 2, 130
_HELP = ("-h", "--help")


def main(words: Sequence[str] | None = None) -> int:
    """Do what a command line says; returns its exit code: 0, 1 failed, 2 not understood, 130 stopped."""
    given = sys.argv[1:] if words is None else words
    as_json = "--json" in given
    code = 0
    with handled_by(_interrupt):
        try:
            command, options, rest = _split(given)
            as_json = "--json" in options
            code = _do(command, [word for word in options if word != "--json"], rest, as_json)
            sys.stdout.flush()
        except (OptionError, SkyError) as error:
            code = WRONG if isinstance(error, OptionError) else FAILED
            said = at_terminal("\n".join([error.message, *getattr(error, "__notes__", ())]))
            print(f"skyward-nb: {said}", file=sys.stderr)
            _document(error, said, as_json=as_json)
        except KeyboardInterrupt as interrupt:
            code = INTERRUPTED
            _document(interrupt, "interrupted", as_json=as_json)
        except BrokenPipeError:
            # Nobody reads any more, and what Python flushes at its end must go somewhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            code = FAILED
    return code


def _split(words: Sequence[str]) -> tuple[str, list[str], list[str]]:
    """The command, the words that are for us, and those of a script, or of what another process is started with."""
    command, *options = words or [""]
    if command == "torchrun":
        own = [*itertools.takewhile(("--json", *_HELP).__contains__, options)]
        return command, own, options[len(own) :]
    if command != "run":
        return command, options, options if command == "rehearse" else []
    from skyward_nb.options.option_line import split_off

    return command, *split_off(options)


def _do(command: str, options: list[str], rest: list[str], as_json: bool) -> int:
    from skyward_nb.cli.command_table import COMMANDS, read

    if command in ("help", *_HELP) or {*_HELP} & {*options}:
        from skyward_nb.cli.command_help import help_text

        about = command if command in COMMANDS else next(iter(options), "")
        print(help_text(about.removeprefix("--") if about not in _HELP else ""))
        return 0
    if command == "--version":
        from importlib.metadata import version

        print(f"skyward-nb {version('skyward-nb')}")
        return 0
    asked = read(command, options)
    from skyward_nb.cli import actions

    return actions.DO[command](asked, rest, as_json)


def _document(error: BaseException, said: str, *, as_json: bool) -> None:
    """Print the error in place of the requested document, if one was requested."""
    if as_json:
        from skyward_nb.cli.documents import Trouble, Troubled, show

        show(Troubled(Trouble(type(error).__name__, said)))


def _interrupt(_number: int, _frame: object) -> None:
    """Handle a signal as an interrupt: what was started is taken down."""
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler):
        raise KeyboardInterrupt
    handler(signal.SIGINT, None)
