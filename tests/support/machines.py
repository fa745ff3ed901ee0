"""State machines of hypothesis, as tests run them."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test


def assert_machine_holds(
    machine: type[RuleBasedStateMachine], *, examples: int, steps: int, **more: Any
) -> None:
    """Let the machine live so often; what it asserts in its rules and invariants must hold.

    No run depends on the ones before it, nor on how fast the machine is.
    """
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            **more,
        ),
    )
