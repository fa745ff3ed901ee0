"""The test kit of actors: time that needs no waiting, and probes that stand where actors would.

async def test() -> None:
    async with ActorSystem() as system:
        probe = await Probe[str].spawn(system)
        await probe.ref.tell("hello")
        await probe.expect("hello")

run(test())
"""

from actors.testing.probe import Probe
from actors.testing.virtual import Stuck, VirtualTimeLoop, run, settle

__all__ = ["Probe", "Stuck", "VirtualTimeLoop", "run", "settle"]
