"""Tests of README and the documentation site: their code runs, their links lead somewhere, their tables are whole."""
