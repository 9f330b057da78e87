"""Cutting users over to the target, and rolling them back: freeze, final pass, verify, switch, thaw."""

from migrator.stages.cutover.choosing import attempts_of_users
from migrator.stages.cutover.context import CutoverWorld, VerifyTree
from migrator.stages.cutover.cutover import CutoverCall

__all__ = ["CutoverCall", "CutoverWorld", "VerifyTree", "attempts_of_users"]
