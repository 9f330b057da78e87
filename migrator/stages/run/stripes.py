"""Stripe settings for user trees that are made on the target."""

from dataclasses import dataclass

from migrator.decide.storage_targets import stripe_words
from migrator.domain.errors import Refused, ToolFailed
from migrator.domain.events import EventKind, Severity
from migrator.domain.paths import join, show
from migrator.stages.run.context import Invocation


@dataclass(frozen=True, slots=True, kw_only=True)
class Stripes:
    """Gives new trees what [target] asks for. A tree that holds something already keeps what it has."""

    invocation: Invocation

    async def is_new(self, tree: bytes) -> bool:
        """Whether settings are asked for, and the tree is not on the target yet, or empty: a killed run may have made it
        and no more. Raises OSError, TimeoutError.
        """
        request, world = self.invocation.request, self.invocation.world
        if request.stripe is None or world.storage is None:
            return False

        def look() -> bool:
            if world.target.look(tree) is None:
                return True
            for block in world.target.read_directory(tree, block_entries=1):
                if block.problems:
                    problem = block.problems[0]
                    raise OSError(0, problem.reason, problem.path)
                if block.entries:
                    return False
            return True

        return await world.blocking(look, timeout_s=request.stall_timeout_s)

    async def give(self, tree: bytes) -> None:
        """Raises Refused where the tool cannot do it: files that were made before would keep what they have."""
        stripe, world = self.invocation.request.stripe, self.invocation.world
        if stripe is None or world.storage is None:
            return
        try:
            await world.storage.set_stripe(join(world.target.root, tree), stripe)
        except ToolFailed as error:
            raise Refused(
                f"the stripe settings of {show(tree)} cannot be set: {error.message}",
                cause="[target] stripe_count and chunk_size are given to every new tree, before anything is in it",
                hint=error.hint or "see `migrator doctor`; or take both keys out of site.toml",
            ) from error
        message = f"new files in {show(tree)} are spread {stripe_words(stripe)}"
        self.invocation.say(EventKind.TREE_STRIPED, Severity.INFO, show(tree), message)
