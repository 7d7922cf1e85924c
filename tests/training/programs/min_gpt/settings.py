"""A configuration of nested tables, which words of the command line change: `trainer.epochs=3`."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from types import SimpleNamespace


def load(words: list[str]) -> SimpleNamespace:
    tables = tomllib.loads((Path(__file__).parent / "config.toml").read_text())
    for word in words:
        place, _, text = word.partition("=")
        table, name = place.split(".")
        if name not in tables[table]:
            raise SystemExit(f"there is no {place} in config.toml")
        old = tables[table][name]
        tables[table][name] = text if isinstance(old, str) else json.loads(text)
    return SimpleNamespace(**{name: SimpleNamespace(**table) for name, table in tables.items()})
