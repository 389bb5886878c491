"""A perftest process under the agent's loop."""

from __future__ import annotations

import os

from ansible_collections.lium.cluster.plugins.module_utils._roce.child import Child
from ansible_collections.lium.cluster.plugins.module_utils._roce.loop import Loop


def test_a_process_that_has_ended_wakes_the_loop_no_more() -> None:
    """A server that ends before its client leaves the agent waiting for the peer's word, not turning in circles."""
    loop = Loop()
    child = Child(loop, ["true"], {"PATH": os.environ["PATH"]})
    assert child.wait(loop.clock() + 10)
    looks = 0

    def count() -> bool:
        nonlocal looks
        looks += 1
        return False

    loop.wait(count, loop.clock() + 0.2)
    assert looks < 10
    assert child.finish().rc == 0
    for end in (loop._selector, loop._wake, loop._woken):
        end.close()
