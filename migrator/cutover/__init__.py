"""`cutover` and `rollback`: freeze, final pass, verify, switch, thaw."""
