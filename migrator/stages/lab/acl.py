"""POSIX ACLs of invented files."""

from migrator.decide.acl import GROUP, GROUP_OBJ, MASK, OTHER, USER, USER_OBJ, AclEntry, build_acl


def acl_value(
    *, owner: int, group: int, other: int, mask: int, users: dict[int, int], groups: dict[int, int] | None = None
) -> bytes:
    """Encode an ACL; permissions are 0..7, `users` and `groups` map ids to permissions."""
    fixed = {USER_OBJ: owner, GROUP_OBJ: group, MASK: mask, OTHER: other}
    named = {USER: users, GROUP: groups or {}}
    return build_acl(
        (
            *(AclEntry(tag=tag, id=0, permissions=permissions) for tag, permissions in fixed.items()),
            *(
                AclEntry(tag=tag, id=identity, permissions=permissions)
                for tag, by_id in named.items()
                for identity, permissions in by_id.items()
            ),
        )
    )
