"""Asking the owner of a live store, from another process of this machine, for what changes it."""
