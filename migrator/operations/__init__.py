"""The one engine of tracked operations: intent, act, result, hooks, resumption."""
