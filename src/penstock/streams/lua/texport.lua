-- uses: common groups retention producers
-- TEXPORT: all of a stream but its messages, as words that TIMPORT takes. Writes nothing.
--
-- KEYS[1..8]  the stream and its side keys (common.lua)
-- ARGV        none
-- Reply       first, last, compacted-to, node-messages, node-bytes, 0, then the words, all of them text: what they
--             are is told by engine/datatypes/stream/copying.py, which says the same about the same stream
--
-- A compaction that is under way is left out: whoever gets the stream begins anew.

local words = {}

local function say(word)
  words[#words + 1] = type(word) == 'number' and common.text(word) or word
end

local function say_policy(self)
  if not self.policy then return say(0) end
  say(#retention.OPTIONS)
  for _, option in ipairs(retention.OPTIONS) do
    say(option[1])
    say(retention.value(self, option[1]))
  end
end

local function say_producers(self, now)
  local ids = self.is_adopted and {} or producers.ids(self, now)
  say(#ids)
  for _, id in ipairs(ids) do
    local sender = producers.load(self, id, now)
    local numbers = producers.numbers(sender)
    say(id)
    say(sender.heard)
    say(sender.is_kept and 1 or 0)
    say(#numbers / 3)
    for _, number in ipairs(numbers) do say(number) end
  end
end

local function say_consumers(self, group)
  local consumers, names = groups.consumers(self, group), {}
  for name in pairs(consumers) do names[#names + 1] = name end
  table.sort(names)
  say(#names)
  for _, name in ipairs(names) do
    say(name)
    say(consumers[name][1])
    say(consumers[name][2])
  end
end

local function is_same(one, other)
  return one.consumer == other.consumer and one.deliveries == other.deliveries
    and one.first_ms == other.first_ms and one.due == other.due and one.expires == other.expires
end

local function say_pending(self, group)
  local ranges = {}
  groups.each_pending(self, group, 0, common.LARGEST, -1, function(offset, record)
    local range = ranges[#ranges]
    if range and range.last == offset - 1 and is_same(range.record, record) then
      range.last = offset
    else
      ranges[#ranges + 1] = {first = offset, last = offset, record = record}
    end
  end)
  say(#ranges)
  for _, range in ipairs(ranges) do
    local record = range.record
    say(range.first)
    say(range.last)
    say(record.consumer)
    say(record.deliveries)
    say(record.first_ms)
    say(record.due)
    say(record.expires)
  end
end

local function say_group(self, group)
  local values = {
    group.name, group.cursor, math.max(group.high + 1, group.cursor), group.lost, group.delivered, group.acked,
    group.expired, group.dead, group.active, group.maxpending, group.ttl, group.ordered, group.maxdeliveries,
    group.backoff, group.deadletter,
  }
  for _, value in ipairs(values) do say(value) end
  say_consumers(self, group)
  say_pending(self, group)
  local parked = groups.parked_offsets(self, group)
  say(#parked)
  for _, offset in ipairs(parked) do say(offset) end
end

return common.run(function()
  local now = common.now_ms()
  local self = common.open(0)
  if not self.token then return false end
  say(self.first)
  say(self.last)
  say(math.max(self.first - 1, math.min(self.compacted, self.last)))
  say(retention.value(self, 'node-messages'))
  say(retention.value(self, 'node-bytes'))
  say(0)
  say(self.ms)
  say_policy(self)
  say_producers(self, now)
  local found = groups.all(self, now)
  say(#found)
  for _, group in ipairs(found) do say_group(self, group) end
  return words
end)
