"""The life of a cluster as pure verbs: check, diff, order, read, update, remove, wait. Knows no Pulumi."""
