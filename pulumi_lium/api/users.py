"""Who the key acts for (contract 3.5, 4.2)."""

from __future__ import annotations

from ._http import HttpCore
from ._model import Model, Number, Readable, ReadableText


class Workspace(Model):
    """The workspace that the key acts in."""

    id: ReadableText = ""
    name: ReadableText = ""
    role: Readable[str] = None
    is_personal: Readable[bool] = None


class User(Model):
    """The account behind the key. `balance` is USD; `workspace` is null where the service has none."""

    id: ReadableText = ""
    email: Readable[str] = None
    balance: Readable[Number] = None
    workspace: Readable[Workspace] = None


class UsersClient:
    """`/users/me`."""

    def __init__(self, http: HttpCore) -> None:
        self._http = http

    def me(self) -> User:
        """The account and workspace that the key acts for; the cheapest check of a key."""
        return self._http.get("/users/me").row(User)
