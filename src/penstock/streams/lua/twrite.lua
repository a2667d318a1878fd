-- uses: common groups retention compaction
-- TWRITE: add messages at the end.
--
-- KEYS[1..8]  the stream and its side keys (common.lua)
-- ARGV        what follows the key in the command
-- Reply       the offset of the last message written
--
-- producers   id -> the time of its last call (ms, 8 bytes), then its last 100 calls, 24 bytes each:
--             first sequence, last sequence, offset of the last message. All big-endian doubles.
-- index       p time<16> id: when a producer was last heard of, to forget it a day later
--
-- Sequences end at 2^53-1 here, as offsets do.

local REMEMBERED_BYTES = 100 * 24
local PRODUCER_MS = 86400000
-- Producers that one call forgets.
local MOST_FORGOTTEN = 10
-- Messages that one call looks at for a compaction that the policy asks for.
local COMPACTED_AT_ONCE = 200

local function wrong_number()
  common.fail("ERR wrong number of arguments for 'twrite' command")
end

local function parse_messages(ask, place)
  local is_pairs = ARGV[place]:upper() == 'ENTRIES'
  local count = #ARGV - place
  if count == 0 or (is_pairs and count % 2 == 1) then wrong_number() end
  for at = place + 1, #ARGV, is_pairs and 2 or 1 do
    ask.tags[#ask.tags + 1] = ARGV[at]
    ask.entries[#ask.entries + 1] = is_pairs and ARGV[at + 1]
  end
end

local function parse_option(ask, word, place)
  if word == 'BACKLOG' then
    if ARGV[place + 1] == '=' then
      ask.is_exact = true
      place = place + 1
    end
    if not ARGV[place + 1] then common.syntax_error() end
    ask.backlog = common.whole(ARGV[place + 1])
    return place + 2
  elseif word == 'IF' and ARGV[place + 1] then
    ask.expected = common.offset(ARGV[place + 1])
    return place + 2
  elseif word == 'PRODUCER' and ARGV[place + 2] then
    ask.producer = ARGV[place + 1]
    ask.sequence = common.whole(ARGV[place + 2])
    if ask.sequence == common.LARGEST then common.whole('too large') end
    return place + 3
  end
  common.syntax_error()
end

local function parse()
  local ask = {tags = {}, entries = {}}
  if #ARGV == 2 then
    ask.tags[1], ask.entries[1] = ARGV[1], ARGV[2]
    return ask
  end
  local place = 1
  while place <= #ARGV do
    local word = ARGV[place]:upper()
    if word == 'ENTRIES' or word == 'TOMBSTONES' then
      parse_messages(ask, place)
      return ask
    end
    place = parse_option(ask, word, place)
  end
  common.syntax_error()
end

-- The calls that are remembered of a producer, and when it was last heard of; '' and nil if there are none.
local function calls_of(self, producer, now)
  local packed = self.token and not self.is_adopted and redis.call('HGET', self.producers, producer)
  if not packed then return '', nil end
  local heard = struct.unpack('>d', packed)
  if heard + PRODUCER_MS <= now then return '', heard end
  return packed:sub(9), heard
end

-- The offset of the message with the sequence `last`, if a call that is remembered wrote all from `first` on.
local function written_before(calls, first, last)
  for at = #calls - 23, 1, -24 do
    local from, to, offset = struct.unpack('>ddd', calls:sub(at, at + 23))
    if from <= first and last <= to then return offset - (to - last) end
  end
end

local function remember(self, ask, now, calls, heard, offset)
  local last = ask.sequence + #ask.tags - 1
  calls = (calls .. struct.pack('>ddd', ask.sequence, last, offset)):sub(-REMEMBERED_BYTES)
  redis.call('HSET', self.producers, ask.producer, struct.pack('>d', now) .. calls)
  if heard then redis.call('ZREM', self.index, 'p' .. common.wide(heard) .. ask.producer) end
  redis.call('ZADD', self.index, 0, 'p' .. common.wide(now) .. ask.producer)
  local old = redis.call(
    'ZRANGEBYLEX', self.index, '[p', '(p' .. common.wide(now - PRODUCER_MS), 'LIMIT', 0, MOST_FORGOTTEN)
  for _, member in ipairs(old) do
    redis.call('ZREM', self.index, member)
    redis.call('HDEL', self.producers, member:sub(18))
  end
end

local function tidy(self, ask, now)
  if ask.backlog and ask.is_exact then
    common.evict_to(self, common.before_newest(self, ask.backlog))
  elseif ask.backlog then
    retention.keep_at_least(self, ask.backlog)
  end
  if not self.policy then return end
  retention.apply(self, now)
  if self.pass == 0 and compaction.is_due(self, now) then compaction.begin(self) end
  if self.pass == 1 then compaction.step(self, now, COMPACTED_AT_ONCE) end
end

return common.run(function()
  local ask = parse()
  local now = common.now_ms()
  local self = common.open(0)
  local calls, heard = '', nil
  if ask.producer then
    calls, heard = calls_of(self, ask.producer, now)
    local at = #calls > 0 and select(2, struct.unpack('>dd', calls:sub(-24)))
    if at and ask.sequence <= at then
      local offset = written_before(calls, ask.sequence, ask.sequence + #ask.tags - 1)
      if offset then return offset end
      common.fail('SEQUENCE producer ' .. ask.producer .. ' is at ' .. common.text(at))
    end
  end
  if ask.expected and ask.expected ~= self.last then
    common.fail('MISMATCH the last offset is ' .. common.text(self.last))
  end
  common.check_room(self, #ask.tags)
  local last = common.append(self, now, ask.tags, ask.entries)
  if ask.producer then remember(self, ask, now, calls, heard, last) end
  tidy(self, ask, now)
  common.save(self)
  return last
end)
