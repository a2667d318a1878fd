-- The policy of a stream, and retention by age, count and bytes.
--
-- Needs common.lua and groups.lua. Kept in meta as a message pack {option = value} of what was set. There is
-- nobody on the server to apply it in the background: TWRITE, TPOLICY and TCOMPACT do.
-- NODE-MESSAGES cuts the log into nodes at its multiples; NODE-BYTES is remembered and not used.

-- Messages that one call reads to find what is too old or too much; the next call goes on.
local MOST_READ = 10000

-- Option, default, and what it may be ('choice': yes or no; or limits), in the order of the reply.
retention.OPTIONS = {
  {'retain-ms', 0}, {'retain-count', 0}, {'retain-bytes', 0}, {'retain-acked', 'no', 'choice'},
  {'compact', 'no', 'choice'}, {'dirty-ratio', 50, 0, 100}, {'min-lag-ms', 0}, {'max-lag-ms', 0},
  {'tombstone-ms', 86400000}, {'node-messages', 1000, 1, 1048576}, {'node-bytes', 1048576, 1, 1073741824},
}

function retention.value(self, name)
  if self.policy and self.policy[name] ~= nil then return self.policy[name] end
  for _, option in ipairs(retention.OPTIONS) do
    if option[1] == name then return option[2] end
  end
end

-- The last offset of the nodes that are closed.
function retention.closed_to(self)
  local node = retention.value(self, 'node-messages')
  return math.floor(self.last / node) * node
end

-- Drop whole nodes from the front while at least `count` messages remain.
function retention.keep_at_least(self, count)
  local node = retention.value(self, 'node-messages')
  local upto = math.floor(common.before_newest(self, count) / node) * node
  return common.evict_to(self, upto)
end

function retention.apply(self, now)
  if not self.policy then return end
  local most_ms, most_count = retention.value(self, 'retain-ms'), retention.value(self, 'retain-count')
  local most_bytes = retention.value(self, 'retain-bytes')
  local upto = 0
  if most_ms > 0 then upto = common.before_time(self, now - most_ms, MOST_READ) end
  if most_count > 0 then upto = math.max(upto, common.before_newest(self, most_count)) end
  if most_bytes > 0 then upto = math.max(upto, common.before_bytes(self, most_bytes, MOST_READ)) end
  if upto > 0 and retention.value(self, 'retain-acked') == 'yes' then
    upto = math.min(upto, groups.done_with(self, now))
  end
  common.evict_to(self, upto)
end
