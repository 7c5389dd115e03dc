"""Prints the plan and the result of an adoption or a release."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from leeway_cli.adopt.calls import call_of
from leeway_cli.cluster_setup.difference import Step
from leeway_cli.output import Format, print_json, write_stdout


@dataclass(frozen=True, slots=True)
class Plan:
    """What a command does in a cluster. `warnings` do not stop it, `blockers` do; `left` are
    settings that it leaves as they are."""

    cluster: str
    steps: Sequence[Step]
    blockers: Sequence[str] = field(default_factory=tuple)
    warnings: Sequence[str] = field(default_factory=tuple)
    left: Sequence[str] = field(default_factory=tuple)

    def as_data(self) -> dict[str, Any]:
        """Return the plan as the fields of a JSON document."""
        return {
            "cluster": self.cluster,
            "steps": [
                {
                    "setting": step.change.key,
                    "reason": step.reason,
                    "call": call_of(self.cluster, step.change),
                    "consent": step.consent,
                }
                for step in self.steps
            ],
            "blockers": [*self.blockers],
            "warnings": [*self.warnings],
            "left": [*self.left],
        }


def print_plan(plan: Plan, output: Format) -> None:
    """Print each step with its call, and whatever does not fit into a step."""
    if output is Format.JSON:
        return
    for number, step in enumerate(plan.steps, 1):
        write_stdout(f"{number:3}. {step.change.title}: {step.reason}")
        write_stdout(f"     {call_of(plan.cluster, step.change)}")
        if step.consent is not None:
            write_stdout(f"     asks first: {step.consent}")
    for title, reasons in (("left", plan.left), ("warning", plan.warnings)):
        for one in reasons:
            write_stdout(f"{title}: {one}")
    if not plan.steps:
        write_stdout("Nothing has to be changed.")


def print_result(plan: Plan, *, done: bool, output: Format) -> None:
    """Print the JSON document of a command, or its last line."""
    if output is Format.JSON:
        print_json({**plan.as_data(), "done": done})
    elif not done:
        write_stdout("Dry run: nothing was changed.")
