"""The account's SSH keys (contract 3.5, 4.3)."""

from __future__ import annotations

from ._http import HttpCore, Retry
from ._model import Model, Readable, ReadableText, UtcTime


class SshKey(Model):
    """A public key that the account keeps."""

    id: ReadableText = ""
    name: ReadableText = ""
    public_key: ReadableText = ""
    created_at: Readable[UtcTime] = None


class SshKeysClient:
    """`/ssh-keys`. An order carries its keys itself, so a failure here need not stop one."""

    def __init__(self, http: HttpCore) -> None:
        self._http = http

    def list(self) -> list[SshKey]:
        """Every key of the account."""
        return self._http.get("/ssh-keys").rows(SshKey)

    def create(self, name: str, public_key: str) -> SshKey:
        """Register a key (an OpenSSH line). What the answer leaves out is what was sent."""
        sent = {"name": name, "public_key": public_key}
        answer = self._http.call("POST", "/ssh-keys", retry=Retry.WRITE, body=sent)
        created = answer.row(SshKey)
        return created.model_copy(update={field: value for field, value in sent.items() if not getattr(created, field)})
