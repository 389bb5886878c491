"""What a failed command of the probe is said to have complained of."""

from __future__ import annotations

import pytest
from ansible_collections.lium.cluster.plugins.module_utils._wireguard.netns import SetupError, run

TAKEN = "docker: Error response from daemon: driver failed: Bind for 0.0.0.0:51820 failed: port is already allocated."


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        (f"echo 3b87b4d9; echo '{TAKEN}' >&2; echo \"Run 'docker run --help' for more information\" >&2", TAKEN),
        (
            "echo done; echo 'Unable to modify interface: Address in use' >&2",
            "Unable to modify interface: Address in use",
        ),
        ("echo only this", "only this"),
        (":", "exit code 125"),
    ],
)
def test_the_line_that_says_what_is_wrong_is_told(script: str, complaint: str) -> None:
    with pytest.raises(SetupError) as error:
        run(["sh", "-c", f"{script}; exit 125"])
    assert str(error.value).endswith(f": {complaint}")
