"""One run of `leeway terminate`: decides for all nodes, drains them, and ends each drained one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from leeway_cli.drain.run import DrainRun, NodePlan
from leeway_cli.errors import CannotBeDoneError, as_clause
from leeway_cli.output import Format, print_json, write_stderr, write_stdout
from leeway_cli.terminate.decide import Call, Ending, Target, decide_ending, find_target
from leeway_cli.terminate.instances import AwsInstances


@dataclass(frozen=True, slots=True)
class Accepted:
    """A node whose instance may be ended, and how."""

    target: Target
    ending: Ending
    retirement: str = ""

    def as_data(self, ended: bool) -> dict[str, Any]:
        """Render it for JSON; `ended` says whether its instance ends now."""
        return {
            "node": self.target.node.name if self.target.node else None,
            "instance": self.target.instance,
            "owner": self.ending.owner,
            "group": self.ending.group or None,
            "call": self.ending.call.value,
            "decrement": self.ending.decrement,
            "retirement": self.retirement or None,
            "terminated": ended,
        }


@dataclass
class TerminateRun:
    """Ends nodes of one cluster, each when it is drained."""

    drains: DrainRun
    instances: AwsInstances
    decrement: bool
    _requested: set[str] = field(default_factory=set)
    _ended: set[str] = field(default_factory=set)
    _failed: dict[str, str] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)
    _stopped: bool = False

    def terminate(self, given: Sequence[str]) -> None:
        """Drain these nodes, end the instances of the drained ones, and print the result.

        Raises:
            CannotBeDoneError: a node is not terminated.
        """
        accepted, problems = self._decide(given)
        for one in accepted.values():
            self._warn(one)
        plans = self._plans(accepted)
        try:
            results = self.drains.carry_out(plans, lambda node: self._end(accepted[node]))
        except KeyboardInterrupt:
            self._stop([accepted[plan.node] for plan in plans])
            raise
        for node, problem in results.problems.items():
            problems[node] = (
                f"Node {node} is not terminated, because it is not drained: {as_clause(problem)}."
            )
        problems |= self._failed
        documents = []
        for title, one in accepted.items():
            ended = one.ending.over or title in self._ended
            documents.append({**results.documents.get(title, {}), **one.as_data(ended)})
            if self.drains.output is Format.TABLE:
                write_stdout(_outcome(one, ended))
        self._finish(documents, problems)

    def dry_run(self, given: Sequence[str], on_server: bool) -> None:
        """Print what `terminate` would do; with `on_server` the API server checks the evictions.

        Raises:
            CannotBeDoneError: a node would not be terminated.
        """
        accepted, problems = self._decide(given)
        plans = self._plans(accepted)
        previews = {one["node"]: one for one in self.drains.preview(plans, on_server)}
        problems |= {
            plan.node: (
                f"Node {plan.node} is not terminated, because it is not drained: "
                f"{as_clause(plan.refused)}."
            )
            for plan in plans
            if plan.refused
        }
        documents = []
        for title, one in accepted.items():
            self._warn(one)
            documents.append({**previews.get(title, {"dryRun": True}), **one.as_data(False)})
            if self.drains.output is Format.TABLE and title not in problems:
                write_stdout(_would(one))
        self._finish(documents, problems)

    def _decide(self, given: Sequence[str]) -> tuple[dict[str, Accepted], dict[str, str]]:
        """Decide for every node before the first one is cordoned."""
        nodes = self.drains.cluster.nodes()
        accepted: dict[str, Accepted] = {}
        problems: dict[str, str] = {}
        freed: dict[str, int] = {}
        for name in given:
            target = find_target(name, nodes)
            if isinstance(target, str):
                problems[name] = target
                continue
            if target.title in accepted:  # given by its name and by its instance
                continue
            ending = self._ending(target, freed)
            if isinstance(ending, str):
                problems[target.title] = ending
                continue
            freed[ending.group] = freed.get(ending.group, 0) + ending.freed
            retirement = "" if ending.over else self.instances.retirement(target.instance)
            accepted[target.title] = Accepted(target, ending, retirement)
        return accepted, problems

    def _ending(self, target: Target, freed: Mapping[str, int]) -> Ending | str:
        now = self.instances.read(target.instance)
        foreign = self.instances.foreign(target.instance, now)
        if foreign is not None:
            return foreign
        return decide_ending(
            target,
            now,
            region=self.instances.region,
            decrement=self.decrement,
            freed=freed.get(now.group.name, 0) if now.group is not None else 0,
        )

    def _plans(self, accepted: Mapping[str, Accepted]) -> list[NodePlan]:
        """Plan the drains. The node of an instance that EC2 terminates has nothing to drain."""
        return [self.drains.decide(title) for title, one in accepted.items() if not one.ending.over]

    def _warn(self, one: Accepted) -> None:
        if one.retirement:
            write_stderr(
                f"warning: Leeway retires node {one.target.title} already: {one.retirement}. "
                "`leeway status` shows it."
            )

    def _end(self, one: Accepted) -> None:
        """End a drained node. A drain may take hours: the instance is read again before, and the
        decision is made again."""
        target = one.target
        try:
            ending = self._ending(target, {})
            if isinstance(ending, str):
                self._failed[target.title] = ending
                return
            with self._lock:  # after Ctrl-C no further instance is ended
                if self._stopped:
                    return
                self._requested.add(target.title)
                self.instances.end(target.instance, ending)
                self._ended.add(target.title)
        except CannotBeDoneError as error:
            self._failed[target.title] = (
                f"Node {target.title} is drained and cordoned, and instance {target.instance} "
                f"still runs: {as_clause(error)}. Run the command again to continue."
            )

    def _stop(self, accepted: Sequence[Accepted]) -> None:
        with self._lock:
            self._stopped = True
        for one in accepted:
            title, instance = one.target.title, one.target.instance
            if title in self._requested:
                write_stderr(f"node/{title}: the termination of instance {instance} was requested")
            else:
                again = f"leeway terminate {title}"
                write_stderr(f"node/{title}: instance {instance} still runs; to go on: {again}")

    def _finish(self, documents: list[dict[str, Any]], problems: Mapping[str, str]) -> None:
        """Print the JSON result, or raise the error that carries it."""
        result = {
            "nodes": documents,
            "notTerminated": [{"node": node, "reason": one} for node, one in problems.items()],
        }
        if problems:
            raise CannotBeDoneError(" ".join(problems.values()), result=result)
        if self.drains.output is Format.JSON:
            print_json(result)


def _outcome(one: Accepted, ended: bool) -> str:
    title, instance = one.target.title, one.target.instance
    if one.ending.over:
        return f"node/{title} terminated already ({instance})"
    return f"node/{title} {'terminated' if ended else 'not terminated'} ({instance})"


def _would(one: Accepted) -> str:
    title, instance, ending = one.target.title, one.target.instance, one.ending
    return f"node/{title}: instance {instance} {'; '.join(_effects(ending))} (dry run)"


def _effects(ending: Ending) -> Iterator[str]:
    if ending.over:
        yield "is terminated already"
    elif ending.call is Call.NONE:
        yield f"is terminated by its group {ending.group} already"
    else:
        yield f"would be ended by {ending.call}"
    if ending.call is Call.IN_GROUP:
        effect = "becomes smaller" if ending.decrement else "launches another instance"
        yield f"group {ending.group} {effect}"
