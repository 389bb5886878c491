"""OpenSSH public keys: a key that the service would take and sshd would not is found before anything is rented."""

from __future__ import annotations

import base64
import binascii
import re

_TYPES = frozenset(
    {
        "ssh-ed25519",
        "ssh-rsa",
        "ecdsa-sha2-nistp256",
        "ecdsa-sha2-nistp384",
        "ecdsa-sha2-nistp521",
        "sk-ssh-ed25519@openssh.com",
        "sk-ecdsa-sha2-nistp256@openssh.com",
    }
)
_CERTIFICATE = re.compile(r"\S+-cert-v01@openssh\.com")


def normalise_public_key(text: str) -> str:
    """The key as one line, without blanks around it. Raises ValueError, whose text never repeats the input."""
    if "PRIVATE KEY" in text:
        raise ValueError("this is a private key: give the public one (the .pub file), and keep this one to yourself")
    line = text.strip()
    if not line:
        raise ValueError("is empty: give a line such as `ssh-ed25519 AAAA… name`")
    if "\n" in line or "\r" in line:
        raise ValueError("holds several lines: give each key as an entry of its own")
    kind, _, rest = line.partition(" ")
    if _CERTIFICATE.fullmatch(kind):
        raise ValueError("is a certificate: give the public key itself")
    if kind not in _TYPES:
        raise ValueError("does not begin with a key type such as ssh-ed25519 or ssh-rsa: give the line of a .pub file")
    if _named_inside(rest.split(None, 1)[0] if rest.strip() else "") != kind:
        raise ValueError(f"is not a whole {kind} key: copy the line of the .pub file again")
    return line


def key_identity(line: str) -> tuple[str, str]:
    """What makes two lines the same key: type and body. The comment is free."""
    kind, body = line.split(None, 2)[:2]
    return kind, body


def _named_inside(body: str) -> str | None:
    """The type that the key's body names, if the body is whole: length-prefixed fields up to its last byte."""
    try:
        data = base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError):
        return None
    fields = []
    while data:
        length = int.from_bytes(data[:4], "big")
        if len(data) < 4 + length:
            return None
        fields.append(data[4 : 4 + length])
        data = data[4 + length :]
    return fields[0].decode("ascii", "replace") if len(fields) >= 2 else None
