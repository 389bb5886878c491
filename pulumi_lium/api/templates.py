"""Templates: which image a pod starts from (contract 3.4, 4.4)."""

from __future__ import annotations

import re

from pydantic import Field

from ._http import HttpCore
from ._model import Model, Readable, ReadableText

CLUSTER_IMAGE = "daturaai/lium-cluster"
"""Images that may run as a cluster begin with this (contract 3.4, 7.2)."""


class Template(Model):
    """A template, as listed or as a pod names it."""

    id: ReadableText = ""
    name: ReadableText = Field(default="", validation_alias="template_name")
    docker_image: ReadableText = ""
    docker_image_tag: Readable[str] = None
    category: Readable[str] = None
    status: Readable[str] = None
    supports_volume_encryption: Readable[bool] = None
    user_id: Readable[str] = None

    @property
    def is_cluster_image(self) -> bool:
        """Whether the service accepts it in a cluster order."""
        return self.docker_image.startswith(CLUSTER_IMAGE)

    @property
    def tag_order(self) -> tuple[int, ...]:
        """Sorts tags by number, so that `0.0.10` is newer than `0.0.7`; parts that are no number count as -1."""
        parts = re.split(r"[.-]", self.docker_image_tag or "latest")
        return tuple(int(part) if part.isascii() and part.isdigit() else -1 for part in parts)


class TemplatesClient:
    """`/templates`."""

    def __init__(self, http: HttpCore) -> None:
        self._http = http

    def list(self) -> list[Template]:
        """Every template that the key may use: public ones and its own."""
        return self._http.get("/templates").rows(Template)
