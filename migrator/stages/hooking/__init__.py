"""Calling hooks around steps of whatever verb. Every call is in the ledger before its hook is started."""

from migrator.stages.hooking.cutovers import CutoverPlace
from migrator.stages.hooking.looks import called_hooks, find_hooks, refuse_hooks
from migrator.stages.hooking.steps import StepHooks
from migrator.stages.hooking.world import HookedStep, HookPorts, HookRefused, HookSkipped, HookWorld, hook_world

__all__ = [
    "CutoverPlace",
    "HookPorts",
    "HookRefused",
    "HookSkipped",
    "HookWorld",
    "HookedStep",
    "StepHooks",
    "called_hooks",
    "find_hooks",
    "hook_world",
    "refuse_hooks",
]
