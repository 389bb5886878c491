"""Set-up, demo and test runner of the checkout. Needs the standard library only, so that any Python >= 3.10 runs it."""
