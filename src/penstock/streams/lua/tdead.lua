-- uses: common groups retention
-- TDEAD: give messages of a group up.
--
-- KEYS[1..8]  the stream and its side keys (common.lua); KEYS[9..16] those of the group's dead-letter stream
-- ARGV[1]     the group
-- ARGV[2]     the reason, for the dead letter
-- ARGV[3…]    items: offsets and ranges `first-last`
-- Reply       how many pending messages were found; or {'DEADLETTER', key}: ask again with those keys

return common.run(function()
  return groups.act_on_items(ARGV[1], common.items(3), function(self, group, offset, record, now)
    groups.give_up(self, group, offset, record, ARGV[2], now)
  end)
end)
