"""The name of `fifoq.testing`, where this is now."""

from fifoq.testing.simfiles import SimFiles

__all__ = ["SimFiles"]
