"""The Pulumi CLI for this checkout: found, installed, or built."""
