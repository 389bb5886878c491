"""Multi-node GPU clusters on Lium as Pulumi resources."""
