"""Every cell on ranks: the state of `%sky on`, and of a kernel made for it.

It stands between the kernel and IPython: a front end's cells are rewritten (`notebook/plain_cells`) as they
come, and history and front ends keep what the person wrote. What front ends ask unseen, and what magics
run, is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from skyward_nb.notebook.plain_cells import KnownShell, rewritten

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from skyward_nb.options.defaults import Default

_MOST_KEPT = 16


class EveryCell:
    """Whether the plain cells of a shell run on ranks, and with which defaults."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.is_on: bool = False
        self.ends_at_restart: bool = False
        """Whether pools end with this kernel although another one takes its place."""
        self.trouble: str = ""
        """Why no cell can run so, if none can: it is each cell's error."""
        self._shell = shell
        self._settings: dict[str, str] = {}
        self._installed: dict[str, str] = {}
        self._installer = "%sky on"
        self._source = ""
        self._own_texts: dict[str, str] = {}

    @property
    def defaults(self) -> list[Default]:
        """The defaults of options that it was turned on with."""
        if not self._settings:
            return []
        # With all options, of which the extension's import needs none.
        from skyward_nb.options.defaults import Default

        return [Default(name, text, self._source) for name, text in self._settings.items()]

    @property
    def mark(self) -> str:
        """What each picture says of it; nothing while it is off."""
        if not self.is_on:
            return ""
        from skyward_nb.words.masking import masked_setting

        given = " ".join(
            f"{name}={masked_setting(name, text)}" for name, text in self._settings.items()
        )
        return f"every cell: {given}" if given else "every cell"

    def install(self, settings: Mapping[str, str], source: str) -> None:
        """Turn it on for a kernel that is made for it: these settings are its own wherever none are given."""
        self._installed, self._installer = dict(settings), source
        self.turn_on({})

    def turn_on(self, settings: Mapping[str, str]) -> None:
        """From the next cell on; `settings` are defaults of options as texts."""
        self._settings = dict(settings or self._installed)
        self._source = "%sky on" if settings else self._installer
        if not self.is_on:
            self.is_on = True
            self._stand_between()

    def turn_off(self) -> None:
        """From the next cell on, cells run here, and the defaults are gone."""
        self._settings = {}
        if self.is_on:
            self.is_on = False
            kernel = getattr(self._shell, "kernel", None)
            for owner, name in (
                (kernel, "do_execute"),
                (self._shell, "run_cell"),
                (self._shell.history_manager, "store_inputs"),
            ):
                if owner is not None:
                    vars(owner).pop(name, None)

    def rewritten(self, text: str) -> str:
        """What IPython is to run in place of a cell's own text, which the history shall keep."""
        shell = self._shell
        magics: Any = shell.magics_manager.magics
        known = KnownShell(shell.transform_cell, magics["cell"], shell.user_ns)
        code = rewritten(text, known, self.trouble)
        if code != text:
            # A cell that fails early is never stored.
            while len(self._own_texts) >= _MOST_KEPT:
                del self._own_texts[next(iter(self._own_texts))]
            self._own_texts[code.rstrip("\n")] = text
        return code

    def _stand_between(self) -> None:
        kernel: Any = getattr(self._shell, "kernel", None)
        history: Any = self._shell.history_manager
        if kernel is not None:
            execute = kernel.do_execute

            async def do_execute(
                code: str, silent: bool, store_history: bool = True, *args: Any, **kwargs: Any
            ) -> Any:
                if store_history and not silent:
                    code = self.rewritten(code)
                return await execute(code, silent, store_history, *args, **kwargs)

            kernel.do_execute = do_execute
        else:
            shell: Any = self._shell
            run = shell.run_cell

            def run_cell(raw_cell: str, store_history: bool = False, *args: Any, **kw: Any) -> Any:
                code = self.rewritten(raw_cell) if store_history else raw_cell
                return run(code, store_history, *args, **kw)

            shell.run_cell = run_cell
        if history is not None:
            store = history.store_inputs

            def store_inputs(number: int, source: str, source_raw: str | None = None) -> None:
                own = self._own_texts.pop((source_raw or source).rstrip("\n"), source_raw)
                store(number, source, own)

            history.store_inputs = store_inputs
