"""Multi-node GPU clusters on Lium as Pulumi resources.

import pulumi_lium as lium

cluster = lium.LiumCluster("train", nodes=4, gpu_type="H100", ssh_public_keys=[...], ttl="8h")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .cluster import LiumCluster as LiumCluster
    from .ephemeral import EphemeralCluster as EphemeralCluster
    from .ephemeral import ephemeral_cluster as ephemeral_cluster
    from .offers import Machine as Machine
    from .offers import Offer as Offer
    from .offers import get_offers as get_offers

_HOME_OF = {
    "EphemeralCluster": "ephemeral",
    "LiumCluster": "cluster",
    "Machine": "offers",
    "Offer": "offers",
    "ephemeral_cluster": "ephemeral",
    "get_offers": "offers",
}

__all__ = ["EphemeralCluster", "LiumCluster", "Machine", "Offer", "ephemeral_cluster", "get_offers"]


def __getattr__(name: str) -> Any:
    """Loads a public name when it is first used: the commands need no Pulumi, a program needs no models."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value
