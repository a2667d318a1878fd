-- uses: common groups retention
-- TACK: acknowledge messages of a group.
--
-- KEYS[1..8]  the stream and its side keys (common.lua); KEYS[9..16] those of the group's dead-letter stream
-- ARGV[1]     the group
-- ARGV[2…]    items: offsets and ranges `first-last`
-- Reply       how many pending messages were found; or {'DEADLETTER', key}: ask again with those keys

return common.run(function()
  return groups.act_on_items(ARGV[1], common.items(2), function(self, group, offset, record)
    group.acked = group.acked + 1
    groups.drop_pending(self, group, offset, record)
  end)
end)
