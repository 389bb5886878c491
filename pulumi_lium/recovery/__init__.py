"""What guarantees that nothing bills unowned: the intent journal, settling, sweep and teardown (design 3.7)."""
