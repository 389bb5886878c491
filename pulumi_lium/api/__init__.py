"""Typed client of the Lium API: transport, errors, and one file per noun. Knows no Pulumi.

Names are imported when first used: the models need pydantic, whose import would double that of a small Pulumi program.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .client import LiumApi as LiumApi
    from .clock import SYSTEM_CLOCK as SYSTEM_CLOCK
    from .clock import Clock as Clock
    from .clock import SystemClock as SystemClock
    from .clusters import ClusterOrder as ClusterOrder
    from .clusters import ClusterRemoval as ClusterRemoval
    from .clusters import MemberRemoval as MemberRemoval
    from .clusters import OrderAnswer as OrderAnswer
    from .errors import ApiError as ApiError
    from .errors import Conflict as Conflict
    from .errors import Forbidden as Forbidden
    from .errors import InsufficientBalance as InsufficientBalance
    from .errors import Invalid as Invalid
    from .errors import InvalidArgument as InvalidArgument
    from .errors import LiumError as LiumError
    from .errors import MissingScope as MissingScope
    from .errors import NoApiKey as NoApiKey
    from .errors import NotFound as NotFound
    from .errors import OrderRefused as OrderRefused
    from .errors import QuotaExceeded as QuotaExceeded
    from .errors import RateLimited as RateLimited
    from .errors import RedirectRefused as RedirectRefused
    from .errors import Refused as Refused
    from .errors import ServerError as ServerError
    from .errors import TransportError as TransportError
    from .errors import Unauthorized as Unauthorized
    from .errors import UndecodableAnswer as UndecodableAnswer
    from .errors import Violation as Violation
    from .nodes import Node as Node
    from .nodes import short_gpu_type as short_gpu_type
    from .offers import Offer as Offer
    from .pods import Pod as Pod
    from .pods import PodEvent as PodEvent
    from .service import RENT_IDEMPOTENCY as RENT_IDEMPOTENCY
    from .service import ServiceVersion as ServiceVersion
    from .settings import DEFAULT_BASE_URL as DEFAULT_BASE_URL
    from .settings import Settings as Settings
    from .ssh_keys import SshKey as SshKey
    from .templates import CLUSTER_IMAGE as CLUSTER_IMAGE
    from .templates import Template as Template
    from .transport import RawAnswer as RawAnswer
    from .transport import RequestsTransport as RequestsTransport
    from .transport import Transport as Transport
    from .users import User as User
    from .users import Workspace as Workspace

_HOMES = {
    "client": "LiumApi",
    "clock": "SYSTEM_CLOCK Clock SystemClock",
    "clusters": "ClusterOrder ClusterRemoval MemberRemoval OrderAnswer",
    "errors": (
        "ApiError Conflict Forbidden InsufficientBalance Invalid InvalidArgument LiumError MissingScope NoApiKey"
        " NotFound OrderRefused QuotaExceeded RateLimited RedirectRefused Refused ServerError TransportError"
        " Unauthorized UndecodableAnswer Violation"
    ),
    "nodes": "Node short_gpu_type",
    "offers": "Offer",
    "pods": "Pod PodEvent",
    "service": "RENT_IDEMPOTENCY ServiceVersion",
    "settings": "DEFAULT_BASE_URL Settings",
    "ssh_keys": "SshKey",
    "templates": "CLUSTER_IMAGE Template",
    "transport": "RawAnswer RequestsTransport Transport",
    "users": "User Workspace",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value
