"""Calls of AWS by boto3, which is imported when the first one is made; each on a thread.

Credentials are boto3's own affair: its chain of variables, profiles, SSO and roles. What goes wrong
is an `AWSError`, whoever said it.
"""

from __future__ import annotations

import asyncio
import functools
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from skyward_nb.providers.aws.api_errors import AWSError, is_refusal
from skyward_nb.words.aws_access import AWSAccess
from skyward_nb.words.errors import MissingDependency
from skyward_nb.words.units import near_words

T = TypeVar("T")
Answer = dict[str, Any]
_CONNECT_LIMIT = 10.0
_READ_LIMIT = 60.0
_TRIES = 5
_KINDS = {
    "ExpiredToken": {"SSOTokenLoadError", "UnauthorizedSSOTokenError", "TokenRetrievalError"},
    "LoginOver": {"LoginError"},
    "NoCredentials": {"NoCredentialsError"},
    "NoMFA": {"RefreshWithMFAUnsupportedError"},
    "NoProfile": {"ProfileNotFound"},
    "BadConfiguration": {
        "ConfigParseError",
        "InvalidConfigError",
        "PartialCredentialsError",
    },
    "NotGiven": {"CredentialRetrievalError"},
    "Unreachable": {
        "EndpointConnectionError",
        "ConnectTimeoutError",
        "ProxyConnectionError",
        "SSLError",
    },
}
"""What errors of botocore's own, before anything was sent, come to."""
_LOST = {"ConnectionClosedError", "ReadTimeoutError", "HTTPClientError", "ResponseStreamingError"}
_BROKEN = 500


class AWSClient:
    """What one person may do with AWS: a session of boto3, and its clients by service and region."""

    def __init__(self, profile: str | None = None, endpoint: str | None = None) -> None:
        self.profile = profile
        self.endpoint = endpoint
        self._lock = threading.Lock()
        self._session: Any = None
        self._clients: dict[tuple[str, str, bool], Any] = {}
        self._account: str | None = None

    @classmethod
    def of(cls, access: AWSAccess) -> AWSClient:
        """The one that a pool's spec means."""
        return cls(access.profile, access.endpoint)

    async def ask(
        self,
        operation: str,
        region: str,
        *,
        service: str = "ec2",
        once: bool = False,
        heard: Callable[[Answer], None] = lambda _: None,
        **words: Any,
    ) -> Answer:
        """Make a call, named as AWS does; `once`, it is not made again when it fails.

        `heard` gets the answer on the call's own thread, also where it is waited for no more.
        Raises `AWSError`.
        """

        def call() -> Answer:
            answer = self._ask(operation, region, service, once=once, words=words)
            heard(answer)
            return answer

        return await on_thread(call)

    async def ask_all(
        self, operation: str, region: str, *, service: str = "ec2", **words: Any
    ) -> Answer:
        """Make a call whose answer comes in pages; raises `AWSError`."""
        return await on_thread(
            functools.partial(self._ask_all, operation, region, service, words=words)
        )

    async def account(self, region: str) -> str:
        """Whose credentials these are: asked once, by a region's server. Raises `AWSError`."""
        if self._account is None:
            said = await self.ask("GetCallerIdentity", region, service="sts")
            self._account = str(said["Account"])
        return self._account

    def region(self) -> str | None:
        """The region that AWS's own configuration names; raises `AWSError` where it cannot be read."""
        return self._translated("configuration", lambda: self._began().region_name)

    def unknown_region(self, region: str) -> str:
        """What is to be said of a region that boto3 has never heard of; "" of one that it knows."""
        session = self._began()
        known = [
            each
            for partition in session.get_available_partitions()
            for each in session.get_available_regions("ec2", partition)
        ]
        if region in known:
            return ""
        return f"region={region}: boto3 knows no such region{near_words(region, known)}"

    def _ask(
        self, operation: str, region: str, service: str, *, once: bool, words: dict[str, Any]
    ) -> Answer:
        return self._translated(
            operation,
            lambda: getattr(self._client(service, region, once), _name(operation))(**words),
        )

    def _ask_all(
        self, operation: str, region: str, service: str, *, words: dict[str, Any]
    ) -> Answer:
        def pages() -> Answer:
            pager = self._client(service, region, False).get_paginator(_name(operation))
            return pager.paginate(**words).build_full_result()

        return self._translated(operation, pages)

    def _translated(self, operation: str, call: Callable[[], T]) -> T:
        """What a call answers, or its error as ours."""
        try:
            return call()
        except MissingDependency:
            raise
        except Exception as error:
            fault = fault_of(operation, error)
            if fault is None:
                raise
            fault.profile = self.profile or os.environ.get("AWS_PROFILE", "")
            raise fault from error

    def _client(self, service: str, region: str, once: bool) -> Any:
        from botocore.config import Config

        key = service, region, once
        with self._lock:
            if key not in self._clients:
                retries: Any = {"total_max_attempts": 1 if once else _TRIES, "mode": "standard"}
                self._clients[key] = self._began().client(
                    service,
                    region_name=region,
                    endpoint_url=self.endpoint,
                    config=Config(
                        retries=retries,
                        connect_timeout=_CONNECT_LIMIT,
                        read_timeout=_READ_LIMIT,
                        user_agent_extra="skyward_nb",
                    ),
                )
            return self._clients[key]

    def _began(self) -> Any:
        if self._session is None:
            try:
                import boto3
            except ImportError as error:
                raise MissingDependency(
                    "boto3", "provider=aws", "pip install 'skyward-nb[aws]'"
                ) from error
            self._session = _new_session(boto3, self.profile)
        return self._session


_MODELS: dict[str | None, Any] = {}
"""By where they lie, the models of services as boto3 has read them: some MB of JSON, of EC2 alone."""
_MODELS_LOCK = threading.Lock()


def _new_session(boto3: Any, profile: str | None) -> Any:
    """A session of boto3 that reads no model which another one of this process has read."""
    import botocore.session
    from botocore.loaders import create_loader

    own = botocore.session.Session(profile=profile)
    place = own.get_config_variable("data_path")
    with _MODELS_LOCK:
        models = _MODELS[place] = _MODELS.get(place) or create_loader(place)
        own.register_component("data_loader", models)
        session = boto3.Session(botocore_session=own)
        # Each session of boto3 adds the same folder.
        models.search_paths[:] = dict.fromkeys(models.search_paths)
    return session


def fault_of(operation: str, error: Exception) -> AWSError | None:
    """An error of botocore as ours, or None where it is none of its own."""
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError

    if isinstance(error, ClientError):
        response: Answer = getattr(error, "response", {})
        said = response.get("Error", {})
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        code, message = str(said.get("Code", "Unknown")), str(said.get("Message", ""))
        is_unknown = status >= _BROKEN and not is_refusal(code)
        return AWSError(code, message, operation, is_unknown=is_unknown)
    if isinstance(error, ResponseParserError):
        return AWSError("Unreadable", str(error), operation, is_unknown=True)
    if not isinstance(error, BotoCoreError):
        return None
    kinds = {each.__name__ for each in type(error).__mro__}
    for code, named in _KINDS.items():
        if kinds & named:
            return AWSError(code, str(error), operation)
    if kinds & _LOST:
        return AWSError("Unreachable", str(error), operation, is_unknown=True)
    return AWSError(type(error).__name__, str(error), operation)


async def on_thread(call: Callable[[], T]) -> T:
    """What a call that waits comes to; once begun it is not left alone: a cancel comes after its end."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(call())
        except BaseException as error:  # noqa: BLE001 - it is raised where the call is waited for
            done.set_exception(error)

    try:
        # No executor: at the interpreter's exit there is none any more.
        threading.Thread(target=run, name="skyward-aws", daemon=True).start()
    except RuntimeError:
        run()
    waiting = asyncio.ensure_future(asyncio.wrap_future(done))
    try:
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        # What it has made must be known before anybody tidies up.
        await asyncio.wait([waiting])
        if not waiting.cancelled():
            waiting.exception()
        raise


def _name(operation: str) -> str:
    from botocore import xform_name

    return xform_name(operation)
