"""Calls of AWS by boto3, which is imported at the first call; each call has its own thread.

boto3 finds the credentials by its chain of variables, profiles, SSO and roles. All errors of AWS and of
boto3 become `AWSError`.
"""

from __future__ import annotations

import asyncio
import copy
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from skyward_nb.providers.aws.api_errors import AWSError, is_refusal
from skyward_nb.words.errors import MissingDependency
from skyward_nb.words.provider_access import AWSAccess
from skyward_nb.words.units import near_words

T = TypeVar("T")
Answer = dict[str, Any]
"""An answer of AWS, or a part of it: a machine, an image."""
Arguments = dict[str, Any]
"""What a call of AWS is given, or a part of it."""
_CONNECT_LIMIT = 10.0
_READ_LIMIT = 60.0
_TRIES = 5
_KINDS = {
    "ExpiredToken": {"SSOTokenLoadError", "UnauthorizedSSOTokenError", "TokenRetrievalError"},
    "LoginOver": {"LoginError"},
    "NoCredentials": {"NoCredentialsError"},
    "NoMFA": {"RefreshWithMFAUnsupportedError"},
    "NoProfile": {"ProfileNotFound"},
    "BadConfiguration": {"ConfigParseError", "InvalidConfigError", "PartialCredentialsError"},
    "NotGiven": {"CredentialRetrievalError"},
    "Unreachable": {
        "EndpointConnectionError",
        "ConnectTimeoutError",
        "ProxyConnectionError",
        "SSLError",
    },
}
"""The codes of botocore's own errors, from before anything was sent."""
_LOST = {"ConnectionClosedError", "ReadTimeoutError", "HTTPClientError", "ResponseStreamingError"}
_BROKEN = 500


class AWSClient:
    """One person's access to AWS: a session of boto3, and its clients by service and region."""

    def __init__(self, profile: str | None = None, endpoint: str | None = None) -> None:
        self.profile = profile
        self.endpoint = endpoint
        self._lock = threading.Lock()
        self._session: Any = None
        self._clients: dict[tuple[str, str, bool], Any] = {}
        self._account: str | None = None

    @classmethod
    def of(cls, access: AWSAccess) -> AWSClient:
        """The client for a pool's access."""
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
        """Make a call by AWS's name for it; with `once`, a failed call is not repeated.

        `heard` gets the answer on the call's own thread, even if the caller was cancelled. Raises `AWSError`.
        """

        def call() -> Answer:
            answer = getattr(self._client(service, region, once), _name(operation))(**words)
            heard(answer)
            return answer

        return await on_thread(lambda: self._translated(operation, call))

    async def ask_all(
        self, operation: str, region: str, *, service: str = "ec2", **words: Any
    ) -> Answer:
        """Make a call whose answer has pages; raises `AWSError`."""

        def pages() -> Answer:
            pager = self._client(service, region, False).get_paginator(_name(operation))
            return pager.paginate(**words).build_full_result()

        return await on_thread(lambda: self._translated(operation, pages))

    async def account(self, region: str) -> str:
        """The account of these credentials, asked once from a region's server; raises `AWSError`."""
        if self._account is None:
            said = await self.ask("GetCallerIdentity", region, service="sts")
            self._account = str(said["Account"])
        return self._account

    def region(self) -> str | None:
        """The region of AWS's own configuration; raises `AWSError` if that cannot be read."""
        return self._translated("configuration", lambda: self._began().region_name)

    def unknown_region(self, region: str) -> str:
        """The message about a region that boto3 does not know; "" for one that it knows."""
        session = self._began()
        known = [
            each
            for partition in session.get_available_partitions()
            for each in session.get_available_regions("ec2", partition)
        ]
        if region in known:
            return ""
        return f"region={region}: boto3 knows no such region{near_words(region, known)}"

    def _translated(self, operation: str, call: Callable[[], T]) -> T:
        """The result of a call, whose errors of botocore become `AWSError`."""
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
"""The models of services that boto3 has read, by folder; those of EC2 alone are some MB of JSON."""
_HANDLERS: list[Any] = []
"""The handlers of events that botocore gives each session: to register them is most of what one takes."""
_SHARED_LOCK = threading.Lock()


def _new_session(boto3: Any, profile: str | None) -> Any:
    """A session of boto3 that shares what other sessions of this process have read and registered."""
    import botocore.session
    from botocore.hooks import HierarchicalEmitter
    from botocore.loaders import create_loader

    with _SHARED_LOCK:
        if not _HANDLERS:
            handlers = HierarchicalEmitter()
            botocore.session.Session(event_hooks=handlers)
            _HANDLERS.append(handlers)
        own = botocore.session.Session(
            event_hooks=copy.copy(_HANDLERS[0]), include_builtin_handlers=False, profile=profile
        )
        place = own.get_config_variable("data_path")
        models = _MODELS[place] = _MODELS.get(place) or create_loader(place)
        own.register_component("data_loader", models)
        session = boto3.Session(botocore_session=own)
        # Each session of boto3 adds the same folder.
        models.search_paths[:] = dict.fromkeys(models.search_paths)
    return session


def fault_of(operation: str, error: Exception) -> AWSError | None:
    """An error of botocore as `AWSError`; None for any other error."""
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
    """The result of a blocking call; a cancellation takes effect after its end."""
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
        # Cleanup must know all that the call has made.
        await asyncio.wait([waiting])
        if not waiting.cancelled():
            waiting.exception()
        raise


def _name(operation: str) -> str:
    from botocore import xform_name

    return xform_name(operation)
