"""The test kit: a machine in memory for programs with stores, and the crash matrix for them.

async def scenario(machine: Machine) -> None:
    async with fifoq.open("orders") as q:
        await q.put(b"tea")
        machine.notes.append(b"tea")

async def invariant(machine: Machine) -> None:
    async with fifoq.open("orders") as q:
        assert len(q) >= len(machine.notes)

crash_matrix(scenario, invariant, power=True)
"""

from actors.testing import Probe, Stuck, VirtualTimeLoop, run, settle
from fifoq.testing.machine import Machine
from fifoq.testing.matrix import CrashFailure, CrashReport, NotRepeatable, crash_matrix

__all__ = [
    "CrashFailure",
    "CrashReport",
    "Machine",
    "NotRepeatable",
    "Probe",
    "Stuck",
    "VirtualTimeLoop",
    "crash_matrix",
    "run",
    "settle",
]
