-- uses: common groups retention
-- TPENDING: what a group has not acknowledged.
--
-- KEYS[1..8]  the stream and its side keys (common.lua); KEYS[9..16] those of the group's dead-letter stream
-- ARGV[1]     the group
-- ARGV[2…]    nothing, or start, end, count, perhaps CONSUMER name
-- Reply       {count, smallest, largest, next-ms}, or rows {offset, consumer, deliveries, since-first-ms,
--             due-in-ms, expires-in-ms}; or {'DEADLETTER', key}: ask again with those keys

local function parse()
  if #ARGV == 1 then return nil end
  if #ARGV ~= 4 and not (#ARGV == 6 and ARGV[5]:upper() == 'CONSUMER') then common.syntax_error() end
  return {
    first = common.offset(ARGV[2]), last = common.offset(ARGV[3]), count = common.whole(ARGV[4]),
    consumer = ARGV[6],
  }
end

local function summary(self, group, now)
  local due = groups.next_due(self, group)
  local next_ms = due and math.max(0, due - now) or -1
  return {group.pending, groups.smallest(self, group), groups.largest(self, group), next_ms}
end

local function rows(self, group, ask, now)
  local found = {}
  -- Consumers have no order of their own, so that all messages have to be looked at.
  local most = ask.consumer and -1 or ask.count
  groups.each_pending(self, group, ask.first, ask.last, most, function(offset, record)
    if #found >= ask.count or (ask.consumer and record.consumer ~= ask.consumer) then return end
    found[#found + 1] = {
      offset, record.consumer, record.deliveries, now - record.first_ms, math.max(0, record.due - now),
      record.expires > 0 and math.max(0, record.expires - now) or -1,
    }
  end)
  return found
end

return common.run(function()
  local ask = parse()
  local now = common.now_ms()
  local self, group = groups.enter(ARGV[1], now)
  if not group then return ask and {} or {0, 0, 0, -1} end
  groups.save_all(self, group)
  return ask and rows(self, group, ask, now) or summary(self, group, now)
end)
