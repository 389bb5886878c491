# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Files that the control node saves for people.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from typing import TextIO

from ansible.errors import AnsibleActionFail


@contextlib.contextmanager
def replacing(path: str) -> Iterator[TextIO]:
    """A stream whose text takes the place of ``path`` in one step once all of it is written, so that a reader never
    meets half of it. Its name until then is this run's own: two runs in one folder write a whole file each, and the
    later one stays. Raises OSError; nothing is left beside ``path`` then."""
    umask = os.umask(0)
    os.umask(umask)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{os.path.basename(path)}.", dir=os.path.dirname(path) or ".")
    try:
        with open(descriptor, "w", encoding="utf-8") as stream:
            os.fchmod(descriptor, 0o666 & ~umask)
            yield stream
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def save(path: str, write: Callable[[TextIO], object], *, what: str, check_mode: bool) -> str:
    """Saves what ``write`` puts into a stream, and answers the absolute path; check mode saves nothing.

    Raises AnsibleActionFail, which names the file; ``what`` says what it would have held.
    """
    path = os.path.abspath(path)
    if check_mode:
        return path
    try:
        with replacing(path) as stream:
            write(stream)
    except OSError as exc:
        raise AnsibleActionFail(f"{what} could not be written to {path}: {exc.strerror}") from exc
    return path
