"""Publishing, and who listens to what. Listening itself is no command with a reply."""

from __future__ import annotations

from penstock.client.commands import conversions as to
from penstock.client.commands.arguments import optional
from penstock.client.commands.base import Coming, Key, Runner, Value


class PubSubQueries(Runner):
    """Publishing, and who listens to what."""

    __slots__ = ()

    def publish(self, channel: Value, message: Value) -> Coming[int]:
        """Send a message to a channel's listeners; how many this server reached."""
        return self._call(("PUBLISH", channel, message))

    def spublish(self, shardchannel: Key, message: Value) -> Coming[int]:
        """Send a message to a shard channel's listeners; how many this server reached."""
        return self._call(("SPUBLISH", shardchannel, message))

    def pubsub_channels(self, pattern: Value | None = None) -> Coming[list[bytes]]:
        """Channels that have listeners."""
        return self._call(("PUBSUB", "CHANNELS", *optional(pattern)))

    def pubsub_numpat(self) -> Coming[int]:
        """How many patterns have listeners."""
        return self._call(("PUBSUB", "NUMPAT"))

    def pubsub_numsub(self, *channels: Value) -> Coming[dict[bytes, int]]:
        """How many listeners each channel has."""
        return self._call(("PUBSUB", "NUMSUB", *channels), to.mapping)

    def pubsub_shardchannels(self, pattern: Value | None = None) -> Coming[list[bytes]]:
        """Shard channels that have listeners."""
        return self._call(("PUBSUB", "SHARDCHANNELS", *optional(pattern)))

    def pubsub_shardnumsub(self, *shardchannels: Value) -> Coming[dict[bytes, int]]:
        """How many listeners each shard channel has."""
        return self._call(("PUBSUB", "SHARDNUMSUB", *shardchannels), to.mapping)
