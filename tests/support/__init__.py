"""What several test folders share; no tests here."""
