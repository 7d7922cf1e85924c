"""What boto does slowly or again and again, and tests need not: pauses, and reading the same model of a service."""

from __future__ import annotations

from typing import Any

from botocore.client import ClientCreator
from botocore.retries import standard

PAUSE = 0.01


def at_once() -> None:
    """Have this process wait for nothing before calls that are sent again, where boto waits up to 20 seconds.

    And make the methods of clients, of which EC2's have 750, once for all clients of a service.
    """
    standard.ExponentialBackoff.delay_amount = lambda _self, _context: PAUSE
    make, read = ClientCreator._create_methods, ClientCreator._load_service_model
    models: dict[tuple[str, str | None], Any] = {}
    methods: dict[str, dict[str, object]] = {}

    def read_once(self: ClientCreator, service: str, version: str | None = None) -> Any:
        if (service, version) not in models:
            models[service, version] = read(self, service, version)
        return models[service, version]

    def make_once(self: ClientCreator, model: Any) -> dict[str, object]:
        if model.service_name not in methods:
            methods[model.service_name] = make(self, model)
        return dict(methods[model.service_name])

    ClientCreator._load_service_model = read_once
    ClientCreator._create_methods = make_once
