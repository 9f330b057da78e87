"""Cutting users over to the target, and rolling them back: freeze, final pass, verify, switch, thaw."""

from migrator.stages.cutover.choosing import attempts_of_users
from migrator.stages.cutover.context import Comparing, CutoverWorld, VerifyTree
from migrator.stages.cutover.cutover import CutoverCall

__all__ = ["Comparing", "CutoverCall", "CutoverWorld", "VerifyTree", "attempts_of_users"]
