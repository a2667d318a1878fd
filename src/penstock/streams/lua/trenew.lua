-- uses: common groups retention
-- TRENEW: whoever has these messages is still at work; their retry time counts from now.
--
-- KEYS[1..8]  the stream and its side keys (common.lua); KEYS[9..16] those of the group's dead-letter stream
-- ARGV[1]     the group
-- ARGV[2]     the new retry time in ms
-- ARGV[3…]    items: offsets and ranges `first-last`
-- Reply       how many pending messages were found; or {'DEADLETTER', key}: ask again with those keys

return common.run(function()
  local retry_ms = common.whole(ARGV[2])
  if retry_ms < 1 then common.fail('ERR retry-ms must be at least 1') end
  return groups.act_on_items(ARGV[1], common.items(3), function(self, group, offset, record, now)
    groups.set_due(self, group, offset, record, now + retry_ms)
  end)
end)
