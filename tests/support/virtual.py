"""The names of `actors.testing`, where this is now."""

from actors.testing import Stuck, VirtualTimeLoop, settle

__all__ = ["Stuck", "VirtualTimeLoop", "settle"]
