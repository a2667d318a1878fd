"""Commands about connections: this one's facts, other clients. What changes the connection has no helper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from penstock.client.commands import conversions as to
from penstock.client.commands import server_conversions as server
from penstock.client.commands.arguments import at_most_one, flag, option, optional, several
from penstock.client.commands.base import Coming, Runner, Value

ClientType: TypeAlias = Literal["normal", "master", "primary", "replica", "slave", "pubsub"]


class Connections(Runner):
    """Commands about connections."""

    __slots__ = ()

    def ping(self, message: Value | None = None) -> Coming[bytes]:
        """Answer PONG, or the message."""
        return self._call(("PING", *optional(message)))

    def echo(self, message: Value) -> Coming[bytes]:
        """Answer the message."""
        return self._call(("ECHO", message))

    def client_id(self) -> Coming[int]:
        """Number of this connection."""
        return self._call(("CLIENT", "ID"))

    def client_getname(self) -> Coming[bytes | None]:
        """Name this connection has."""
        return self._call(("CLIENT", "GETNAME"))

    def client_getredir(self) -> Coming[int]:
        """Connection that gets our invalidations: 0 this one, -1 none."""
        return self._call(("CLIENT", "GETREDIR"))

    def client_trackinginfo(self) -> Coming[dict[str, Any]]:
        """How tracking is set on this connection."""
        return self._call(("CLIENT", "TRACKINGINFO"), server.tracking_info)

    def client_info(self) -> Coming[dict[str, str]]:
        """client_list for this connection alone."""
        return self._call(("CLIENT", "INFO"), server.client_info)

    def client_list(
        self, *, type: ClientType | None = None, ids: Sequence[int] = ()
    ) -> Coming[list[dict[str, str]]]:
        """Facts about each connection, all of them, those of a type, or some by their numbers."""
        at_most_one(type=type, ids=ids or None)
        numbers = several("ids", ids)
        words = ("CLIENT", "LIST", *option("TYPE", type), *flag("ID", len(numbers) > 0), *numbers)
        return self._call(words, server.client_list)

    def client_kill(
        self,
        *,
        id: int | None = None,
        type: ClientType | None = None,
        user: Value | None = None,
        addr: Value | None = None,
        laddr: Value | None = None,
        maxage: int | None = None,
        skipme: bool | None = None,
    ) -> Coming[int]:
        """Close the connections that fit every filter; how many. ``maxage`` in seconds."""
        filters = (
            *option("ID", id),
            *option("TYPE", type),
            *option("USER", user),
            *option("ADDR", addr),
            *option("LADDR", laddr),
            *option("MAXAGE", maxage),
        )
        if not filters:
            raise ValueError("give at least one of id, type, user, addr, laddr, maxage")
        return self._call(("CLIENT", "KILL", *filters, *option("SKIPME", _yes_or_no(skipme))))

    def client_pause(self, timeout_ms: int, mode: Literal["WRITE", "ALL"] | None = None) -> Coming[bytes]:
        """Hold back commands of all clients for a time, or only those that write."""
        return self._call(("CLIENT", "PAUSE", timeout_ms, *optional(mode)))

    def client_unpause(self) -> Coming[bytes]:
        """Let commands run again after client_pause."""
        return self._call(("CLIENT", "UNPAUSE"))

    def client_unblock(self, client_id: int, mode: Literal["TIMEOUT", "ERROR"] | None = None) -> Coming[bool]:
        """End another connection's wait as if by timeout, or by an error; whether it waited."""
        return self._call(("CLIENT", "UNBLOCK", client_id, *optional(mode)), bool)

    # ------------------------------------------------------------ users

    def acl_whoami(self) -> Coming[str]:
        """Name this connection is logged in with."""
        return self._call(("ACL", "WHOAMI"), to.text)

    def acl_users(self) -> Coming[list[str]]:
        """Names of the users."""
        return self._call(("ACL", "USERS"), to.texts)

    def acl_list(self) -> Coming[list[str]]:
        """The users, each as a rule line."""
        return self._call(("ACL", "LIST"), to.texts)

    def acl_getuser(self, username: Value) -> Coming[dict[str, Any] | None]:
        """Everything about one user."""
        return self._call(("ACL", "GETUSER", username), server.optional_user)

    def acl_setuser(self, username: Value, *rules: Value) -> Coming[bytes]:
        """Create a user, or change what one may do."""
        return self._call(("ACL", "SETUSER", username, *rules))

    def acl_deluser(self, username: Value, *usernames: Value) -> Coming[int]:
        """Delete users and close their connections; how many there were."""
        return self._call(("ACL", "DELUSER", username, *usernames))

    def acl_cat(self, category: Value | None = None) -> Coming[list[str]]:
        """Command categories, or the commands in one."""
        return self._call(("ACL", "CAT", *optional(category)), to.texts)

    def acl_dryrun(self, username: Value, command: Value, *args: Value) -> Coming[bytes]:
        """Whether a user may run a command: OK, or why not."""
        return self._call(("ACL", "DRYRUN", username, command, *args))

    def acl_genpass(self, bits: int | None = None) -> Coming[str]:
        """A password from the server's source of chance, as hexadecimal digits."""
        return self._call(("ACL", "GENPASS", *optional(bits)), to.text)

    def acl_log(self, count: int | None = None) -> Coming[list[dict[str, Any]]]:
        """What was refused lately, the most recent first."""
        return self._call(("ACL", "LOG", *optional(count)), server.acl_log)

    def acl_log_reset(self) -> Coming[bytes]:
        """ACL LOG RESET: forget what was refused."""
        return self._call(("ACL", "LOG", "RESET"))


def _yes_or_no(value: bool | None) -> str | None:
    return None if value is None else "yes" if value else "no"
