"""Cases about packaging and secrets are played with the real engine."""

from __future__ import annotations

from tests.engine.conftest import engine_env, make_stack, pulumi_cli

__all__ = ["engine_env", "make_stack", "pulumi_cli"]
