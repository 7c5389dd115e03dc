"""Makes the commands of findings act where the doctor read.

Somebody pastes them later: without the options of the doctor, and with any current context. The
same names of groups, rules, stacks and clusters may exist in another account or region.
"""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from leeway_cli.doctor.facts import ClusterFacts, Facts, known
from leeway_cli.doctor.finding import Cause
from leeway_cli.places import Place
from leeway_cli.stack import DEFAULT_STACK


@dataclass(frozen=True, slots=True)
class Where:
    """The account, the region and the stack that the doctor was asked for. `hiding` are variables
    of the user's environment that select other credentials before AWS_PROFILE."""

    place: Place
    stack: str
    hiding: tuple[str, ...] = ()

    def placed(self, cause: Cause, facts: Facts) -> Cause:
        """Return a finding whose commands name where they act."""
        cluster = next((one for one in facts.clusters if one.name == cause.cluster), None)
        lines = cause.command.splitlines()
        placed = dict.fromkeys(one for line in lines for one in self._placed(line, cluster))
        return replace(cause, command="\n".join(placed))

    def _placed(self, line: str, cluster: ClusterFacts | None) -> Iterator[str]:
        words = shlex.split(line)
        match words:
            case ["aws", "cloudformation", "update-stack-set" | "update-stack-instances", *_]:
                yield line  # these run in the account that has the StackSet
            case ["aws" | "sam", *_]:
                yield shlex.join([*words, *self._options()])
            case ["leeway", *_]:
                of_stack = ["--stack", self.stack] if self.stack != DEFAULT_STACK else []
                yield " ".join([*self._variables(), shlex.join([*words, *of_stack])])
            case ["kubectl", *_] if cluster is not None:
                yield from self._kubectl(words, cluster)
            case _:
                yield line

    def _kubectl(self, words: Sequence[str], cluster: ClusterFacts) -> Iterator[str]:
        """Yield a command with the context of a cluster. Without one, a command before it writes
        the context, whose name is the ARN of the cluster. Source: AWS CLI command reference, `eks
        update-kubeconfig`."""
        options = cluster.context
        if not options:
            update = ["aws", "eks", "update-kubeconfig", "--name", cluster.name]
            yield shlex.join([*update, *self._options()])
            eks = known(cluster.eks)
            options = ("--context", eks.arn) if eks is not None and eks.arn else ()
        yield shlex.join([*words, *options])

    def _options(self) -> Iterator[str]:
        """Yield the options of the AWS CLI and of SAM, which take precedence over variables."""
        for option, value in (("--profile", self.place.profile), ("--region", self.place.region)):
            if value:
                yield from (option, value)

    def _variables(self) -> Iterator[str]:
        """Yield the same for a command of Leeway, which need not have these options."""
        if self.place.profile:
            if self.hiding:
                yield " ".join(["env", *(f"-u {name}" for name in self.hiding)])
            yield f"AWS_PROFILE={shlex.quote(self.place.profile)}"
        if self.place.region:
            yield f"AWS_REGION={shlex.quote(self.place.region)}"
