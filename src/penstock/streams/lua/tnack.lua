-- uses: common groups retention
-- TNACK: have messages of a group delivered again, not before a delay.
--
-- KEYS[1..8]  the stream and its side keys (common.lua); KEYS[9..16] those of the group's dead-letter stream
-- ARGV[1]     the group
-- ARGV[2]     the delay in ms; `*`: what the group's backoff list says
-- ARGV[3…]    items: offsets and ranges `first-last`
-- Reply       how many pending messages were found; or {'DEADLETTER', key}: ask again with those keys

local function check_backoff(group)
  if ARGV[2] == '*' and group.backoff == '' then common.whole(ARGV[2]) end -- no list, so it is no number
end

return common.run(function()
  local delay_ms = ARGV[2] ~= '*' and common.whole(ARGV[2])
  return groups.act_on_items(ARGV[1], common.items(3), function(self, group, offset, record, now)
    local delay = delay_ms or groups.delay(group, record.deliveries, 0)
    groups.set_due(self, group, offset, record, now + delay)
  end, check_backoff)
end)
