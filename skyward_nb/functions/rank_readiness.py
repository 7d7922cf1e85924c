"""Ranks of a pool that is up are prepared for what functions use, by a new generation, once nothing runs there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from skyward_nb.functions.call_display import CallDisplay
from skyward_nb.functions.used_frameworks import UsedFrameworks
from skyward_nb.options.framework_choice import FrameworkChoice
from skyward_nb.options.plugin_options import missing
from skyward_nb.options.specs import extended, extended_by_choice, readied_for
from skyward_nb.plugins.choices import PluginChoice
from skyward_nb.pool.installing import added_words
from skyward_nb.pool.pool import Pool
from skyward_nb.words.errors import StartError
from skyward_nb.words.pool_options import PoolOptions
from skyward_nb.words.simulation import simulation_notes
from skyward_nb.words.spec import PoolSpec


class RankReadiness:
    """What the ranks of a pool are prepared for; within `all_ranks` nothing else runs there."""

    def __init__(
        self,
        pool: Pool,
        stage: CallDisplay,
        used: UsedFrameworks,
        all_ranks: Callable[[], AbstractContextManager[object]],
    ) -> None:
        self._pool = pool
        self._stage = stage
        self._used = used
        self._all_ranks = all_ranks
        self._refused: set[str] = set()
        """Frameworks that functions use and that did not come up."""

    def is_ready(
        self, uses: tuple[PluginChoice, ...], functions: Sequence[Callable[..., Any]]
    ) -> bool:
        """Whether `ready` has nothing to do, and so to wait for."""
        spec = self._pool.spec
        if uses and missing(spec, uses):
            return False
        return not (spec.adds_frameworks and self._lacks(self._used.of(functions)))

    def ready(
        self, uses: tuple[PluginChoice, ...], functions: Sequence[Callable[..., Any]]
    ) -> None:
        """Prepare the ranks for the frameworks that functions use, if they are not: by a new generation.

        That are the plugins that their decorators name; of a pool that was made without any, also the
        frameworks that they import. Raises `OptionError` where that contradicts what the pool is made with.
        """
        if uses and missing(self._pool.spec, uses):
            with self._all_ranks():
                if missing(self._pool.spec, uses):
                    self._become(readied_for(self._pool.spec, uses))
        if self._pool.spec.adds_frameworks:
            self.add(self._used.of(functions))

    def install(self, packages: Sequence[str]) -> None:
        """Install packages on all machines, once ranks are free; these begin anew with them."""
        with self._all_ranks():
            spec = extended(self._pool.spec, PoolOptions(pip=tuple(packages)))
            if spec is not self._pool.spec:
                self._become(spec)

    def add(self, chosen: FrameworkChoice) -> None:
        """Prepare the ranks for frameworks, but for those that did not come up before."""
        chosen = self._allowed(chosen)
        if self._lacks(chosen):
            with self._all_ranks():
                if (spec := self._extended(chosen)) is not self._pool.spec:
                    try:
                        self._become(spec, str(chosen))
                    except StartError:  # nobody asked for it: the picture tells it
                        self._refused.update(chosen.words)

    def _allowed(self, chosen: FrameworkChoice) -> FrameworkChoice:
        return chosen.of(lambda word: word not in self._refused)

    def _lacks(self, chosen: FrameworkChoice) -> bool:
        chosen = self._allowed(chosen)
        return bool(chosen.words) and self._extended(chosen) is not self._pool.spec

    def _extended(self, chosen: FrameworkChoice) -> PoolSpec:
        return extended_by_choice(self._pool.spec, chosen, asked=False)[0]

    def _become(self, spec: PoolSpec, note: str = "") -> None:
        what = added_words(spec, self._pool.spec)
        display = self._stage.display(f"Readying {what}")
        told = simulation_notes(spec, self._pool.spec)
        try:
            change = self._pool.become(spec, display.watch)
        except BaseException as error:
            # One that nobody asked for is told by the picture alone.
            display.error_follows = not note and isinstance(error, Exception)
            display.fail(error)
            raise
        notes = (note, *told) if note else told
        notes += change.notes
        display.end("finished", f"Ranks are ready for {what}", notes=notes)
