"""The crash simulator: whole lives of a stack, killed anywhere, in a few milliseconds each (see `simulator`)."""
