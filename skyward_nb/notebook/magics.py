"""The magics: parse the line, delegate to the session, return the result. Nothing else."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from IPython.core.completer import (
    CompletionContext,
    SimpleCompletion,
    SimpleMatcherResult,
    context_matcher,
)
from IPython.core.error import UsageError
from IPython.core.interactiveshell import ExecutionInfo, InteractiveShell
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class, no_var_expand
from IPython.core.ultratb import SyntaxTB

from skyward_nb.compat.ipython_private import theme_of
from skyward_nb.notebook.debug_channel import close, open_for
from skyward_nb.notebook.every_cell import EveryCell
from skyward_nb.notebook.lone_help import lone_help_has_a_body
from skyward_nb.show.cell_outputs import CellOutputs

if TYPE_CHECKING:
    from skyward_nb.notebook.function_pools import FunctionPools
    from skyward_nb.notebook.session import Session


@magics_class
class SkyMagics(Magics):
    """`%%sky_remote` and `%sky`; and `%debug`, which knows ranks."""

    shell: InteractiveShell

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self._session: Session | None = None
        self._function_pools: FunctionPools | None = None
        self.every_cell: EveryCell = EveryCell(shell)
        self.ipythons_debug: Any = shell.find_line_magic("debug")
        shell.events.register("pre_run_cell", self.ready_joblib)

    @property
    def session(self) -> Session:
        """The notebook's pools; what they need is imported at first use."""
        if self._session is None:
            from skyward_nb.notebook.session import Session

            self._session = Session(self.shell, self.every_cell)
        return self._session

    @property
    def function_pools(self) -> FunctionPools:
        """The same pools, for functions."""
        if self._function_pools is None:
            from skyward_nb.notebook.function_pools import FunctionPools

            self._function_pools = FunctionPools(self.session)
        return self._function_pools

    def close(self) -> list[str]:
        """Take down what this notebook has up; what came of each pool, in words."""
        self.every_cell.turn_off()
        if self.ready_joblib in self.shell.events.callbacks["pre_run_cell"]:
            self.shell.events.unregister("pre_run_cell", self.ready_joblib)
        vars(getattr(self.shell, "kernel", self)).pop("do_inspect", None)
        if self._session is None:
            return []
        said = self._session.pools.close()
        self._session.values.close()
        self._session.altered.close()
        return said

    def look_into_ranks(self) -> None:
        """Have the kernel's tooltips tell of names of ranks, too."""
        kernel: Any = getattr(self.shell, "kernel", None)
        if kernel is None:
            return
        inspect = kernel.do_inspect

        def do_inspect(
            code: str, cursor_pos: int, detail_level: int = 0, *args: Any, **kw: Any
        ) -> Any:
            found: Mapping[str, str] | None = None
            if self._session is not None:
                from skyward_nb.notebook.rank_names import inspected

                found = inspected(self._session, code, cursor_pos, detail_level)
            if found is None:
                return inspect(code, cursor_pos, detail_level, *args, **kw)
            return {"status": "ok", "found": True, "data": dict(found), "metadata": {}}

        kernel.do_inspect = do_inspect

    def ready_joblib(self, info: ExecutionInfo) -> None:
        """Before the first cell that may use it: let joblib know its backend "skyward"."""
        text = str(info.raw_cell)
        if "joblib" in sys.modules or "parallel_backend" in text or "parallel_config" in text:
            self.shell.events.unregister("pre_run_cell", self.ready_joblib)
            with contextlib.suppress(ImportError):
                from skyward_nb.functions.executors import register

                register()

    @no_var_expand
    @cell_magic
    def sky_remote(self, line: str, cell: str) -> object:
        """Run the cell on the ranks of a pool; `%sky help` lists the options."""
        from skyward_nb.options.option_line import parse
        from skyward_nb.options.synonyms import asks_for_help

        if asks_for_help(line):
            print(_help())
            return None
        with _plain_errors():
            return self.session.run(parse(self._expanded(line)), cell)

    @cell_magic
    def local(self, line: str, cell: str) -> None:
        """Run the cell in the notebook's own process, also where every cell runs on ranks (`%sky on`)."""
        if line.strip():
            raise UsageError(f"%%local takes no options: {line}")
        # Where every cell runs on ranks, what stands below the line is run as a cell of its own.
        self.shell.run_cell(cell).raise_error()

    @no_var_expand
    @line_magic
    def sky(self, line: str) -> object:
        """Steer pools: `%sky up`, `down`, `status`, `restart`, `help`."""
        from skyward_nb.notebook.verbs import do

        with _plain_errors():
            return do(self.session, self._expanded(line))

    @line_magic
    def debug(self, line: str) -> None:
        """IPython's own `%debug`; where the last exception came from a rank, `%sky debug`."""
        from skyward_nb.notebook.debugger import debug, failed_last

        last = None if line.strip() or self._session is None else failed_last()
        pool = None if last is None else self.session.pools.with_id(last[0])
        if pool is None:
            self.ipythons_debug(line)
        else:
            with _plain_errors():
                debug(self.session, f"pool={pool.spec.name}")

    @context_matcher(  # pyright: ignore[reportUntypedFunctionDecorator] - IPython's own is untyped
        identifier="skyward_nb", priority=100
    )
    def completions(self, context: CompletionContext) -> SimpleMatcherResult:
        """Options, their values and verbs, for Tab; if there are any, other completers are skipped.

        Jedi takes a magic's line for Python, and seconds to find that it knows nothing of it.
        """
        head, space, rest = context.text_until_cursor.lstrip().partition(" ")
        found: list[str] = []
        if space and head in ("%%sky_remote", "%sky", "sky"):
            from skyward_nb.options.option_help import complete

            hidden = self.shell.user_ns_hidden
            names = [n for n in self.shell.user_ns if not n.startswith("_") and n not in hidden]
            head = "%sky" if head == "sky" else head
            found = complete(f"{head} {rest}", context.token, names, self._pool_names())
        completions = [SimpleCompletion(text=each) for each in found]
        return {"completions": completions, "suppress": True, "ordered": True}

    @context_matcher(  # pyright: ignore[reportUntypedFunctionDecorator] - IPython's own is untyped
        identifier="skyward_nb_ranks", priority=90
    )
    def rank_names(self, context: CompletionContext) -> SimpleMatcherResult:
        """What ranks have, for Tab in cells that run there; attributes of theirs are all that is offered."""
        found: list[str] = []
        is_all = False
        if self._session is not None:
            from skyward_nb.notebook.rank_names import completions

            line = context.text_until_cursor
            found, is_all = completions(self._session, context.full_text, line, context.token)
        offered = [SimpleCompletion(text=each) for each in found]
        return {"completions": offered, "suppress": is_all and bool(found), "ordered": True}

    def _pool_names(self) -> Iterator[str]:
        """The names of the notebook's pools, then of others on this machine; not looked up before they are needed."""
        from skyward_nb.pool.registry import entries

        own = [*self._session.pools] if self._session is not None else []
        yield from dict.fromkeys((*own, *(entry.spec.name for entry in entries())))

    def _expanded(self, line: str) -> str:
        """The line with `{expression}` and `$name` replaced, as IPython does it for every magic.

        But only where there are any: IPython copies the whole namespace for it.
        """
        # The user's frame: above this one the magic, IPython's call of it, and that.
        return self.shell.var_expand(line, 3) if "{" in line or "$" in line else line


def load(shell: InteractiveShell) -> None:
    """Register the magics with a shell, once."""
    if _loaded(shell) is None:
        magics = SkyMagics(shell)
        for magic in (magics.sky_remote, magics.sky):
            magic.__func__.__doc__ = _help()  # type: ignore[attr-defined]
        shell.register_magics(magics)
        shell.SyntaxTB = _QuietSyntaxTB(shell.SyntaxTB)
        shell.Completer.custom_matchers += [magics.completions, magics.rank_names]
        shell.input_transformers_cleanup.append(lone_help_has_a_body)
        magics.look_into_ranks()
        CellOutputs.in_lab(getattr(shell, "kernel", None))
        open_for(getattr(shell, "kernel", None))
        _tell_what_is_left(shell)


def _tell_what_is_left(shell: InteractiveShell) -> None:
    """Say which pools an earlier kernel has left alive; nothing is imported where there are none."""
    from skyward_nb.providers.folders import far_root, runtime_root

    if any(runtime_root().glob("*/pool.json")) or any(far_root().glob("*.json")):
        from skyward_nb.reports.found_pools import announcement, notebook_of

        if words := announcement(notebook_of(shell.user_ns)):
            print(words)


def unload(shell: InteractiveShell) -> None:
    """Take pools down and the magics away."""
    from skyward_nb.reports.exception_groups import leave

    magics = _loaded(shell)
    if magics is not None:
        for said in magics.close():  # %reload_ext does this, too
            print(said)
        leave(shell)
        CellOutputs.forget(getattr(shell, "kernel", None))
        close(getattr(shell, "kernel", None))
        if isinstance(shell.SyntaxTB, _QuietSyntaxTB):
            shell.SyntaxTB = shell.SyntaxTB.original
        for matcher in (magics.completions, magics.rank_names):
            shell.Completer.custom_matchers.remove(matcher)
        shell.input_transformers_cleanup.remove(lone_help_has_a_body)
        registry = shell.magics_manager
        for name in ("sky_remote", "local"):
            registry.magics["cell"].pop(name, None)
        registry.magics["line"].pop("sky", None)
        registry.magics["line"]["debug"] = magics.ipythons_debug
        registry.registry.pop("SkyMagics", None)


@contextmanager
def _plain_errors() -> Generator[None]:
    """A wrong option as IPython's UsageError; an interrupt of our own code without its frames."""
    from skyward_nb.words.errors import OptionError

    try:
        yield
    except OptionError as error:
        raise UsageError(str(error)) from None
    except KeyboardInterrupt as interrupt:
        if not hasattr(interrupt, "_render_traceback_"):
            from skyward_nb.reports.rank_failures import show

            show(interrupt, ["KeyboardInterrupt"])
        raise


class _QuietSyntaxTB(SyntaxTB):
    """IPython's renderer of syntax errors, letting an error that renders itself do so.

    For other exceptions IPython looks for `_render_traceback_`; for syntax errors it does not,
    and would show the frames between the cell and us.
    """

    def __init__(self, original: SyntaxTB) -> None:
        super().__init__(theme_name=theme_of(original))
        self.original = original

    def structured_traceback(self, etype: Any, evalue: Any, *args: Any, **kwargs: Any) -> list[str]:
        """The lines to show."""
        render = getattr(evalue, "_render_traceback_", None)
        if render is not None:
            return render()
        return self.original.structured_traceback(etype, evalue, *args, **kwargs)


def _loaded(shell: InteractiveShell) -> SkyMagics | None:
    return shell.magics_manager.registry.get("SkyMagics")


def every_cell_of(shell: InteractiveShell) -> EveryCell:
    """The state of `%sky on` of a shell with the extension."""
    magics = _loaded(shell)
    assert magics is not None
    return magics.every_cell


def _help() -> str:
    from skyward_nb.options.option_help import help_text

    return help_text()
