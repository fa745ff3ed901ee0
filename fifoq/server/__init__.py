"""A frame server: committed records of a store over TCP, for Spark executors elsewhere.

async with fifoq.server.serve(store, port=7040, token=token) as server:
    print(server.url("orders"))
"""

from fifoq.server.limits import ServerLimits
from fifoq.server.server import FrameServer, ServerStats, serve

__all__ = ["FrameServer", "ServerLimits", "ServerStats", "serve"]
