-- What all stream scripts share: arguments, errors, the stream with its side keys, appending, evicting.
--
-- Keys of a stream, all in one slot (keys.py derives their names). A script gets those of its stream as
-- KEYS[1..8] and, where a group has one, those of the dead-letter stream as KEYS[9..16].
--   1 stream     Redis stream, the log: entry `<offset>-0` with the fields m (time in ms), t (tag) and
--                e (entry; a tombstone has none), in this order. Its one consumer group, `penstock-…`, is
--                never read from: its name is the token that ties the other keys to this incarnation.
--   2 meta       hash: token; first, last (offsets); ms (time of the last message); raw (bytes of tags and
--                entries); dirty (such bytes written since the last compaction began), dirty_ms (since
--                when); compacted (up to which offset); ids, tickets (counters); pass, pass_at, pass_end,
--                pass_open (a running compaction, see compaction.lua); policy (see retention.lua)
--   3 groups     hash: name -> state of a group (groups.lua)
--   4 pending    hash: what groups know of messages (groups.lua), of held tags and of readers (line.lua)
--   5 index      sorted set, all scores 0, read by lexical ranges: one letter, then what is looked for
--   6 consumers  hash: group id + name -> activity (groups.lua)
--   7 producers  hash: id -> the last calls of a producer (producers.lua)
--   8 seen       hash, only while a compaction runs: the tags that it has met
--
-- DEL of the stream alone is enough: side keys whose token is not the stream's are ignored, and removed when
-- something is written. RENAME and COPY take the messages along, not groups, policy and producers.
--
-- Numbers in Lua are doubles, so offsets end at 2^53-1 here, and `ERR the stream is full` comes earlier.
-- Larger offsets in arguments are understood; nothing is there.

-- One table of functions for each file that scripts are joined from (scripts.py).
local common, groups, line, retention, compaction, producers = {}, {}, {}, {}, {}, {}

common.LARGEST = 9007199254740991
common.MOST_MESSAGES = 1000000
common.MOST_BYTES = 64 * 1024 * 1024
-- Entries that are held in Lua at a time.
common.CHUNK = 1000
-- Evicting more than this at once adjusts `raw` in proportion instead of by reading everything.
common.COUNTED = 10000

local KEYS_OF_A_STREAM = 8
local MARK = 'penstock-'
local WRONGTYPE = 'WRONGTYPE Operation against a key holding the wrong kind of value'
local NUMBERS = {
  'first', 'last', 'ms', 'raw', 'dirty', 'dirty_ms', 'compacted', 'ids', 'tickets',
  'pass', 'pass_at', 'pass_end', 'pass_open',
}

-- ------------------------------------------------------------------------------------------- ending

-- Refuse the command. Only before anything was changed.
function common.fail(text)
  error({refused = text}, 0)
end

function common.syntax_error()
  common.fail('ERR syntax error')
end

-- End the script with a reply that is for the caller of the script and not for the user.
function common.tell(reply)
  error({told = reply}, 0)
end

-- The reply of `body`, or the error it ended with, with no position added to the text.
function common.run(body)
  local is_fine, answer = pcall(body)
  if is_fine then return answer end
  if type(answer) ~= 'table' then return redis.error_reply('ERR ' .. tostring(answer)) end
  return answer.told or redis.error_reply(answer.refused or answer.err)
end

-- ---------------------------------------------------------------------------------------- arguments

function common.text(number)
  return string.format('%.0f', number)
end

-- Sixteen digits, so that numbers sort as text.
function common.wide(number)
  return string.format('%016.0f', number)
end

-- The number that digits alone make, or nil.
local function digits(text, largest)
  if not text:find('^%d+$') then return nil end
  if #text > #largest or (#text == #largest and text > largest) then return nil end
  return tonumber(text)
end

-- A whole number from 0 to 2^64-1; those that are no double are all "beyond the largest".
function common.offset(text)
  local number = digits(text, '18446744073709551615')
  if not number then common.fail('ERR invalid offset') end
  return math.min(number, common.LARGEST + 1)
end

-- Counts, milliseconds and the like; as everywhere in Redis, without leading zeros.
function common.whole(text)
  local number = digits(text, '9223372036854775807')
  if not number or (#text > 1 and text:sub(1, 1) == '0') then
    common.fail('ERR value is not an integer or out of range')
  end
  return math.min(number, common.LARGEST)
end

-- Where a group is to begin: '$' after the last message, 0 at the first one there is.
function common.start(text)
  if text == '$' or text == '' then return '$' end
  return common.offset(text)
end

local function merged(items)
  table.sort(items, function(one, other) return one[1] < other[1] end)
  local ranges = {}
  for _, item in ipairs(items) do
    local before = ranges[#ranges]
    if before and item[1] <= before[2] then
      before[2] = math.max(before[2], item[2])
    else
      ranges[#ranges + 1] = item
    end
  end
  return ranges
end

-- Offsets and ranges from ARGV[first] on, as pairs that do not overlap.
function common.items(first)
  local items = {}
  for place = first, #ARGV do
    local low, high = ARGV[place]:match('^(%d+)%-(%d+)$')
    low = common.offset(low or ARGV[place])
    high = high and common.offset(high) or low
    if high < low then common.fail('ERR invalid offset') end
    items[#items + 1] = {low, high}
  end
  return merged(items)
end

function common.now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- ---------------------------------------------------------------------------------------- the stream

local function token_of(key)
  local marks = redis.pcall('XINFO', 'GROUPS', key)
  if marks.err then
    if marks.err:find('no such key', 1, true) then return nil end
    common.fail(marks.err)
  end
  for _, mark in ipairs(marks) do
    if mark[2]:sub(1, #MARK) == MARK then return mark[2] end
  end
  common.fail(WRONGTYPE) -- a stream of Redis that is none of ours
end

-- A stream that came here by RENAME, COPY or RESTORE: the log tells its offsets.
local function adopt(self)
  local flat = redis.call('XINFO', 'STREAM', self.key)
  local info = {}
  for place = 1, #flat, 2 do info[flat[place]] = flat[place + 1] end
  self.is_adopted = true
  self.last = tonumber(info['last-generated-id']:match('^%d+'))
  self.first = self.last + 1
  if info['first-entry'] then self.first = tonumber(info['first-entry'][1]:match('^%d+')) end
  if info['last-entry'] then self.ms = tonumber(info['last-entry'][2][2]) end
end

-- The stream whose keys begin at KEYS[base + 1]. It may not exist: `token` is nil then.
function common.open(base)
  local self = {
    key = KEYS[base + 1], meta = KEYS[base + 2], groups = KEYS[base + 3], pending = KEYS[base + 4],
    index = KEYS[base + 5], consumers = KEYS[base + 6], producers = KEYS[base + 7], seen = KEYS[base + 8],
    base = base, changed = {},
  }
  self.token = token_of(self.key)
  if self.token then
    local found = redis.call('HMGET', self.meta, 'token', 'policy', unpack(NUMBERS))
    if found[1] == self.token then
      self.policy = found[2] and cmsgpack.unpack(found[2])
      for place, name in ipairs(NUMBERS) do self[name] = tonumber(found[place + 2] or 0) end
      return self
    end
  end
  for _, name in ipairs(NUMBERS) do self[name] = 0 end
  self.first = 1
  if self.token then adopt(self) end
  return self
end

local function forget_side_keys(self)
  redis.call('DEL', unpack(KEYS, self.base + 2, self.base + KEYS_OF_A_STREAM))
end

-- Before the first change: make the stream if it is not there, and its side keys its own.
function common.ensure(self)
  if self.token and not self.is_adopted then return end
  forget_side_keys(self)
  if not self.token then
    local time = redis.call('TIME')
    self.token = MARK .. redis.sha1hex(self.key .. ' ' .. time[1] .. ' ' .. time[2]):sub(1, 16)
    redis.call('XGROUP', 'CREATE', self.key, self.token, '0', 'MKSTREAM')
  end
  self.is_adopted = false
  self.changed.token = true
  for _, name in ipairs(NUMBERS) do
    if self[name] ~= 0 then self.changed[name] = true end
  end
end

function common.set(self, name, value)
  self[name] = value
  self.changed[name] = true
end

function common.save(self)
  local fields = {}
  for name in pairs(self.changed) do
    local value = self[name]
    fields[#fields + 1] = name
    fields[#fields + 1] = type(value) == 'number' and common.text(value) or value
  end
  if #fields > 0 then redis.call('HSET', self.meta, unpack(fields)) end
  self.changed = {}
end

-- A stream that existed when a reader began to wait for it must be the same one still.
function common.check_token(self, token)
  if token ~= '' and self.token ~= token then
    common.fail('UNBLOCKED the stream ' .. self.key .. ' is gone')
  end
end

-- ------------------------------------------------------------------------------------------ messages

-- Offset, tag, entry (false: a tombstone) and time of a row of XRANGE.
function common.message(row)
  local fields = row[2]
  return tonumber(row[1]:match('^%d+')), fields[4], fields[6] or false, tonumber(fields[2])
end

function common.size(tag, entry)
  return #tag + (entry and #entry or 0)
end

function common.range(self, first, last, count)
  return redis.call(
    'XRANGE', self.key, common.text(first) .. '-0', common.text(last) .. '-0', 'COUNT', count)
end

-- The row at one offset, or nil.
function common.row_at(self, offset)
  return common.range(self, offset, offset, 1)[1]
end

-- Call `each(offset, tag, entry, ms)` from the oldest message on until it answers true, at most `most` times.
function common.walk(self, most, each)
  local first = self.first
  while most > 0 and first <= self.last do
    local rows = common.range(self, first, self.last, math.min(most, common.CHUNK))
    for _, row in ipairs(rows) do
      local offset, tag, entry, ms = common.message(row)
      if each(offset, tag, entry, ms) then return end
      first = offset + 1
    end
    if #rows == 0 then return end
    most = most - #rows
  end
end

function common.check_room(self, count)
  if self.last + count > common.LARGEST then common.fail('ERR the stream is full') end
end

-- Add messages at the end; entries that are false make tombstones. Times never run backwards.
function common.append(self, now, tags, entries)
  common.ensure(self)
  local ms = math.max(self.ms, now)
  local bytes = 0
  local offset = self.last
  for place, tag in ipairs(tags) do
    offset = offset + 1
    local id = common.text(offset) .. '-0'
    if entries[place] then
      redis.call('XADD', self.key, id, 'm', common.text(ms), 't', tag, 'e', entries[place])
    else
      redis.call('XADD', self.key, id, 'm', common.text(ms), 't', tag)
    end
    bytes = bytes + common.size(tag, entries[place])
  end
  if self.dirty == 0 then common.set(self, 'dirty_ms', ms) end
  common.set(self, 'last', offset)
  common.set(self, 'ms', ms)
  common.set(self, 'raw', self.raw + bytes)
  common.set(self, 'dirty', self.dirty + bytes)
  return offset
end

-- Remove rows by their ids, at most CHUNK of them, which have so many bytes; answers how many there were.
function common.remove(self, ids, bytes)
  if #ids == 0 then return 0 end
  common.set(self, 'raw', math.max(0, self.raw - bytes))
  return redis.call('XDEL', self.key, unpack(ids))
end

-- --------------------------------------------------------------------------------------------- evict

local function bytes_up_to(self, offset)
  local bytes, counted = 0, 0
  common.walk(self, common.COUNTED, function(at, tag, entry)
    if at > offset then return true end
    bytes = bytes + common.size(tag, entry)
    counted = counted + 1
  end)
  return bytes, counted
end

-- Remove every message at or below an offset; answers how many there were.
function common.evict_to(self, offset)
  local new_first = math.min(offset, self.last) + 1
  if new_first <= self.first then return 0 end
  common.ensure(self)
  local bytes, counted = bytes_up_to(self, new_first - 1)
  local removed = redis.call('XTRIM', self.key, 'MINID', '=', common.text(new_first) .. '-0')
  local left = redis.call('XLEN', self.key)
  local raw = self.raw - bytes
  if removed > counted then raw = math.floor(raw * left / (left + removed - counted)) end
  common.set(self, 'raw', left > 0 and math.max(raw, 0) or 0)
  common.set(self, 'first', new_first)
  common.set(self, 'compacted', math.max(self.compacted, new_first - 1))
  return removed
end

-- The offset up to which messages go when the newest `count` remain; 0: none go.
function common.before_newest(self, count)
  local excess = redis.call('XLEN', self.key) - count
  if excess <= 0 then return 0 end
  if count == 0 then return self.last end
  if excess + count == self.last - self.first + 1 then return self.first + excess - 1 end
  local kept
  common.walk(self, excess + 1, function(offset) kept = offset end)
  return kept - 1
end

-- The last offset written before a time, as far as `most` messages tell; 0: none.
function common.before_time(self, time_ms, most)
  local last = 0
  common.walk(self, most, function(offset, _, _, ms)
    if ms >= time_ms then return true end
    last = offset
  end)
  return last
end

-- The offset up to which messages go when at most so many bytes remain, as far as `most` messages tell.
function common.before_bytes(self, bytes, most)
  local last, left = 0, self.raw
  if left <= bytes then return 0 end
  common.walk(self, most, function(offset, tag, entry)
    if left <= bytes then return true end
    last, left = offset, left - common.size(tag, entry)
  end)
  return last
end
