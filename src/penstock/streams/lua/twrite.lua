-- uses: common groups retention compaction producers
-- TWRITE: add messages at the end.
--
-- KEYS[1..8]  the stream and its side keys (common.lua)
-- ARGV        what follows the key in the command
-- Reply       the offset of the last message written
--
-- Sequences end at 2^53-1 here, as offsets do.

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
    ask.is_kept = (ARGV[place + 3] or ''):upper() == 'KEEP'
    return place + (ask.is_kept and 4 or 3)
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
  local sender
  if ask.producer then
    sender = producers.load(self, ask.producer, now)
    local offset = producers.repeated(self, sender, ask.sequence, #ask.tags, ask.is_kept, now)
    if offset then return offset end
  end
  if ask.expected and ask.expected ~= self.last then
    common.fail('MISMATCH the last offset is ' .. common.text(self.last))
  end
  common.check_room(self, #ask.tags)
  local last = common.append(self, now, ask.tags, ask.entries)
  if sender then producers.remember(self, sender, ask.sequence, #ask.tags, last, ask.is_kept, now) end
  tidy(self, ask, now)
  common.save(self)
  return last
end)
