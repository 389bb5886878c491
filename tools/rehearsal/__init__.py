"""The rehearsal: pair verification of hundreds of emulated hosts on one machine."""
