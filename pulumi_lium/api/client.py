"""The service as one object."""

from __future__ import annotations

import random

from ._http import HttpCore
from .clock import SYSTEM_CLOCK, Clock
from .clusters import ClustersClient
from .offers import OffersClient
from .pods import PodsClient
from .service import ServiceClient
from .settings import Settings
from .ssh_keys import SshKeysClient
from .templates import TemplatesClient
from .transport import RequestsTransport, Transport
from .users import UsersClient


class LiumApi:
    """Every call that this package makes, one attribute per noun. Safe to share between threads.

    How calls are retried is written at `HttpCore`. Whatever the network and the service do, a method raises `LiumError`
    and nothing else.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        transport: Transport | None = None,
        clock: Clock = SYSTEM_CLOCK,
        rng: random.Random | None = None,
    ) -> None:
        self.settings = settings
        http = HttpCore(settings, transport or RequestsTransport(), clock, rng or random.Random())
        self.offers = OffersClient(http)
        self.clusters = ClustersClient(http)
        self.pods = PodsClient(http)
        self.templates = TemplatesClient(http)
        self.ssh_keys = SshKeysClient(http)
        self.service = ServiceClient(http)
        self.users = UsersClient(http)

    def __repr__(self) -> str:
        return f"LiumApi({self.settings.base_url!r}, account={self.settings.account!r})"
