"""Two ways from the client to the network: a fast one for a million lives, and the whole client to prove it by.

The fast one leaves out what a crash cannot change: JSON, scrubbing, and validating the same row again. Retries, errors
and models are the client's own.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import SecretStr

from pulumi_lium.api import LiumApi, Node, Offer, Pod, Settings, Template
from pulumi_lium.api._envelope import api_error, read_envelope
from pulumi_lium.api._http import Answer, HttpCore
from pulumi_lium.api._retry_after import retry_after_seconds
from pulumi_lium.api.clusters import ClustersClient
from pulumi_lium.api.errors import TransportError
from pulumi_lium.api.offers import OffersClient
from pulumi_lium.api.pods import PodsClient
from pulumi_lium.api.service import ServiceClient
from pulumi_lium.api.templates import TemplatesClient
from pulumi_lium.api.transport import RawAnswer
from pulumi_lium.api.users import UsersClient

from .clock import VirtualClock
from .network import OURS, Cut, Network

SETTINGS = Settings("http://lium.test/api", SecretStr(OURS))


@dataclass(frozen=True)
class _CachingAnswer(Answer):
    """Validates nothing twice: the market shares unchanged rows between answers, and machines never change here."""

    seen: dict[int, tuple[Any, Any]]

    def _parse(self, model: Any, row: Any, place: str) -> Any:
        found = self.seen.get(id(row))
        if found is None or found[0] is not row:
            found = self.seen[id(row)] = (row, Answer._parse(self, model, _with_parts(model, row), place))
        return found[1]


_nodes: dict[tuple[Any, ...], Node] = {}
_templates: dict[str, Template] = {}


def _with_parts(model: Any, row: dict[str, Any]) -> dict[str, Any]:
    """The row with its machines and its template as models."""
    if model is Pod:
        return {**row, "executor": _node(row["executor"]), "template": _template(row["template"])}
    if model is Offer:
        return {**row, "nodes": [_node(node) for node in row["nodes"]]}
    return row


def _node(row: dict[str, Any]) -> Node:
    key = (row["id"], row["machine_name"], row["price_per_gpu"], row.get("available_gpu_count"))
    if key not in _nodes:
        _nodes[key] = Node.model_validate(row)
    return _nodes[key]


def _template(row: dict[str, Any]) -> Template:
    if row["id"] not in _templates:
        _templates[row["id"]] = Template.model_validate(row)
    return _templates[row["id"]]


class FastHttp(HttpCore):
    """The client's core, its exchange cut short."""

    def __init__(self, network: Network, clock: VirtualClock, rng: random.Random) -> None:
        super().__init__(SETTINGS, None, clock, rng)  # type: ignore[arg-type]
        self._network = network
        self._rows: dict[int, tuple[Any, Any]] = {}

    def _send(self, method: str, path: str, body: Any, headers: Mapping[str, str], may_be_empty: bool) -> Answer:
        try:
            reply = self._network.exchange(method, path, body, headers.get("Idempotency-Key"))
        except Cut as cut:
            raise TransportError(
                f"The connection failed: {cut.error.__name__}",
                sent=cut.sent,
                outcome_unknown=cut.sent and method != "GET",
            ) from None
        is_write = method != "GET"
        if reply.status >= 400:
            raise api_error(
                reply.status,
                read_envelope(reply.document, b"", reply.headers, self._scrub),
                is_write=is_write,
                retry_after=retry_after_seconds(reply.headers.get("retry-after"), self._clock.now()),
                method=method,
                path=path,
            )
        if reply.page:
            raise Answer(None, {}, 200, method, path, is_write).undecodable("it is a web page, not JSON")
        if method == "GET":
            return _CachingAnswer(reply.document, reply.headers, 200, method, path, False, self._rows)
        return Answer(reply.document, reply.headers, 200, method, path, is_write)


class FastApi(LiumApi):
    """`LiumApi` over `FastHttp`."""

    def __init__(self, network: Network, clock: VirtualClock, rng: random.Random) -> None:
        http = FastHttp(network, clock, rng)
        self.settings = SETTINGS
        self.offers = OffersClient(http)
        self.clusters = ClustersClient(http)
        self.pods = PodsClient(http)
        self.templates = TemplatesClient(http)
        self.service = ServiceClient(http)
        self.users = UsersClient(http)


class WholeTransport:
    """A `Transport` for the whole client."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def send(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None, timeout: tuple[float, float]
    ) -> RawAnswer:
        path = url.removeprefix(SETTINGS.base_url)
        try:
            reply = self._network.exchange(
                method, path, json.loads(body) if body else None, headers.get("Idempotency-Key")
            )
        except Cut as cut:
            raise cut.error from None
        text = b"<html></html>" if reply.page else json.dumps(reply.document).encode()
        return RawAnswer(reply.status, dict(reply.headers), text)


def whole_api(network: Network, clock: VirtualClock, rng: random.Random) -> LiumApi:
    """The client as it is."""
    return LiumApi(SETTINGS, transport=WholeTransport(network), clock=clock, rng=rng)
