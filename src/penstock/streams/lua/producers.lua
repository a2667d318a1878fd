-- Producers: what they have written, so that a write that is repeated is not written twice.
--
-- Needs common.lua.
--
--   producers  id -> the time of its last call (ms, 8 bytes; negative: it is kept), then its last 100 calls,
--              24 bytes each: first sequence, last sequence, offset of the last message. All big-endian doubles.
--   index      p time<16> id: when a producer was last heard of, to forget it a day later; none if it is kept

local REMEMBERED_BYTES = 100 * 24
local PRODUCER_MS = 86400000
-- Producers that one call forgets.
local MOST_FORGOTTEN = 10

-- A producer: `id`, `calls` ('' if none are remembered), and if it was stored `heard` (ms) and `is_kept`.
function producers.load(self, id, now)
  local packed = self.token and not self.is_adopted and redis.call('HGET', self.producers, id)
  if not packed then return {id = id, calls = ''} end
  local heard = struct.unpack('>d', packed)
  local sender = {id = id, calls = packed:sub(9), heard = math.abs(heard), is_kept = heard < 0}
  if not sender.is_kept and heard + PRODUCER_MS <= now then sender.calls = '' end
  return sender
end

-- The sequence and the offset of its last message.
function producers.last_call(sender)
  local _, sequence, offset = struct.unpack('>ddd', sender.calls:sub(-24))
  return sequence, offset
end

-- Ids of those that are remembered, sorted.
function producers.ids(self, now)
  local ids = {}
  for _, id in ipairs(redis.call('HKEYS', self.producers)) do
    if producers.load(self, id, now).calls ~= '' then ids[#ids + 1] = id end
  end
  table.sort(ids)
  return ids
end

-- Calls of a producer as numbers, three of each: first sequence, last sequence, offset of the last message.
function producers.numbers(sender)
  local numbers = {}
  for at = 1, #sender.calls, 8 do numbers[#numbers + 1] = struct.unpack('>d', sender.calls:sub(at, at + 7)) end
  return numbers
end

local function store(self, sender, is_kept, now)
  if sender.heard and not sender.is_kept then
    redis.call('ZREM', self.index, 'p' .. common.wide(sender.heard) .. sender.id)
  end
  redis.call('HSET', self.producers, sender.id, struct.pack('>d', is_kept and -now or now) .. sender.calls)
  if not is_kept then redis.call('ZADD', self.index, 0, 'p' .. common.wide(now) .. sender.id) end
end

-- The offset of the message with the sequence `last`, if a call that is remembered wrote all from `first` on.
local function written_before(calls, first, last)
  for at = #calls - 23, 1, -24 do
    local from, to, offset = struct.unpack('>ddd', calls:sub(at, at + 23))
    if from <= first and last <= to then return offset - (to - last) end
  end
end

-- The offset that a call answered when it was made before, or nil. Refuses one that was written in part.
function producers.repeated(self, sender, sequence, count, is_kept, now)
  if sender.calls == '' then return nil end
  local at = producers.last_call(sender)
  if sequence > at then return nil end
  local offset = written_before(sender.calls, sequence, sequence + count - 1)
  if not offset then common.fail('SEQUENCE producer ' .. sender.id .. ' is at ' .. common.text(at)) end
  if sender.is_kept ~= is_kept then store(self, sender, is_kept, now) end
  return offset
end

local function forget_silent(self, now)
  local old = redis.call(
    'ZRANGEBYLEX', self.index, '[p', '(p' .. common.wide(now - PRODUCER_MS), 'LIMIT', 0, MOST_FORGOTTEN)
  for _, member in ipairs(old) do
    redis.call('ZREM', self.index, member)
    redis.call('HDEL', self.producers, member:sub(18))
  end
end

-- A call was written, its last message at an offset.
function producers.remember(self, sender, sequence, count, offset, is_kept, now)
  local call = struct.pack('>ddd', sequence, sequence + count - 1, offset)
  sender.calls = (sender.calls .. call):sub(-REMEMBERED_BYTES)
  store(self, sender, is_kept, now)
  forget_silent(self, now)
end

-- A producer that wrote somewhere else before (timport.lua).
function producers.put(self, id, heard, is_kept, numbers)
  local calls = {}
  for place, number in ipairs(numbers) do calls[place] = struct.pack('>d', number) end
  store(self, {id = id, calls = table.concat(calls)}, is_kept, heard)
end
