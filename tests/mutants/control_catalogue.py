"""Mutants of the command line's take and of the visitors of a store. See `catalogue`."""

from __future__ import annotations

from typing import Final

from tests.mutants.catalogue import of_fifoq as _mutant

TAKING: Final = "tests/cli/test_taking.py"
VISIT: Final = "tests/control/test_visit.py"
SHAPES: Final = "tests/control/test_shapes.py"

CONTROL_MUTANTS: Final = (
    _mutant(
        "a record is acked before whoever reads has it",
        "cli.records",
        '        await writer.hand_over(b"".join(lines))\n'
        "        await asked.ask(Ack(queue=queue), Count)\n",
        "        await asked.ask(Ack(queue=queue), Count)\n"
        '        await writer.hand_over(b"".join(lines))\n',
        TAKING,
    ),
    _mutant(
        "what a visitor holds is not given back when he leaves",
        "control.desk",
        "                    delivery.nack(delay=0)\n",
        "                    pass\n",
        VISIT,
    ),
    _mutant(
        "a visitor's queue keeps its bytes",
        "open_queues",
        "        if name in self._lent and not lent:\n",
        "        if False:\n",
        VISIT,
    ),
    _mutant(
        "what is put by hand is not checked",
        "control.desk",
        "        checked = decode(payload, type=type_of(codec.shape) if codec.shape else Any)\n",
        "        checked = decode(payload)\n",
        SHAPES,
    ),
)
