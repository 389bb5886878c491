"""The Lium service on one machine: a deterministic market under a thin HTTP layer."""
