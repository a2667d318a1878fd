-- Groups: their state, what they have pending, what they gave up, tags that they hold.
--
-- Needs common.lua and retention.lua. A group is stored as a message pack of its FIELDS in the hash `groups`,
-- by name. `id` is eight digits, never given twice in a stream, and begins everything a group has in the
-- shared keys (`<16>`: sixteen digits):
--
--   index      o id offset<16>                     pending, by offset
--              d id due<16> offset<16>             pending, by the time of the next delivery
--              x id expires<16> offset<16>         pending, by the time it is given up
--              k id offset<16>                     parked: read while its tag was held, delivered later
--              w id length<16> tag offset<16>      parked, by tag
--              r id offset<16> tag                 parked and ready: its tag became free
--   pending    id offset<16>                       message pack of RECORD
--              t id tag                            how many messages hold a tag (ordered groups)
--   consumers  id name                             message pack of {active in ms, delivered}
--
-- Invariants of an ordered group: a tag is held as often as it is pending or ready; messages are parked
-- by tag (w) only while their tag is held; the empty tag is never held.

-- Parked messages of a group, if it may not have more pending anyway.
local LEAST_PARKED = 1000
-- Consumers that come before those which were not seen for a day are forgotten.
local CROWD = 1000
local CONSUMER_MS = 86400000
-- Messages given up for their age in one call.
local MOST_EXPIRED = 1000

local FIELDS = {
  'id', 'cursor', 'high', 'pending', 'lost', 'delivered', 'acked', 'expired', 'dead', 'active',
  'maxpending', 'ttl', 'ordered', 'maxdeliveries', 'backoff', 'deadletter',
}
local RECORD = {'consumer', 'deliveries', 'first_ms', 'due', 'expires', 'tag'}

local function pack(names, values)
  local list = {}
  for place, name in ipairs(names) do list[place] = values[name] end
  return cmsgpack.pack(list)
end

local function unpacked(names, packed)
  local values = {}
  for place, value in ipairs(cmsgpack.unpack(packed)) do values[names[place]] = value end
  return values
end

-- ------------------------------------------------------------------------------------- lexical ranges

-- Members that begin with a prefix; what follows it begins with a digit.
local function members(self, prefix, count)
  return redis.call('ZRANGEBYLEX', self.index, '[' .. prefix, '(' .. prefix .. ':', 'LIMIT', 0, count or -1)
end

local function last_member(self, prefix)
  return redis.call('ZREVRANGEBYLEX', self.index, '(' .. prefix .. ':', '[' .. prefix, 'LIMIT', 0, 1)[1]
end

-- Those whose number after the prefix is `number` or less.
local function members_to(self, prefix, number, count)
  return redis.call(
    'ZRANGEBYLEX', self.index, '[' .. prefix, '(' .. prefix .. common.wide(number + 1), 'LIMIT', 0, count)
end

local function count_to(self, prefix, number)
  return redis.call('ZLEXCOUNT', self.index, '[' .. prefix, '(' .. prefix .. common.wide(number + 1))
end

local function count_of(self, prefix)
  return redis.call('ZLEXCOUNT', self.index, '[' .. prefix, '(' .. prefix .. ':')
end

local function add(self, member)
  redis.call('ZADD', self.index, 0, member)
end

local function remove(self, member)
  redis.call('ZREM', self.index, member)
end

-- The number of sixteen digits at a place of a member; 10 is behind the letter and the id.
local function number_at(member, place)
  return tonumber(member:sub(place, place + 15))
end

local function last_number(member)
  return tonumber(member:sub(-16))
end

-- -------------------------------------------------------------------------------------- groups as such

-- Where a group that begins at `start` reads first.
function groups.resolve(self, start)
  if start == '$' then return self.last + 1 end
  return start == 0 and self.first or start
end

function groups.new(self, name, start, now)
  common.ensure(self)
  common.set(self, 'ids', self.ids + 1)
  return {
    id = string.format('%08d', self.ids), name = name, cursor = groups.resolve(self, start), high = 0,
    pending = 0, lost = 0, delivered = 0, acked = 0, expired = 0, dead = 0, active = now,
    maxpending = 1000, ttl = 0, ordered = 'no', maxdeliveries = 0, backoff = '', deadletter = '',
  }
end

function groups.save(self, group)
  redis.call('HSET', self.groups, group.name, pack(FIELDS, group))
end

local function is_over(group, now)
  return group.ttl > 0 and group.active + group.ttl <= now
end

-- The group of that name, or nil. One that nobody used for too long goes, unless somebody waits in it.
function groups.load(self, name, now, is_waiting)
  if not self.token or self.is_adopted then return nil end
  local packed = redis.call('HGET', self.groups, name)
  if not packed then return nil end
  local group = unpacked(FIELDS, packed)
  group.name = name
  if is_waiting or not is_over(group, now) then return group end
  groups.destroy(self, group)
  return nil
end

-- All groups that are not over, by name. Changes nothing, so that scripts which only read may ask.
function groups.all(self, now)
  local found = {}
  if not self.token or self.is_adopted then return found end
  local flat = redis.call('HGETALL', self.groups)
  for place = 1, #flat, 2 do
    local group = unpacked(FIELDS, flat[place + 1])
    group.name = flat[place]
    if not is_over(group, now) then found[#found + 1] = group end
  end
  table.sort(found, function(one, other) return one.name < other.name end)
  return found
end

local function lowest(self, prefix)
  local member = members(self, prefix, 1)[1]
  return member and number_at(member, 10)
end

-- Everything below it is acknowledged.
function groups.ack_offset(self, group)
  local offset = math.max(group.cursor, self.first)
  for _, letter in ipairs({'o', 'k'}) do
    offset = math.min(offset, lowest(self, letter .. group.id) or offset)
  end
  return offset
end

-- The last offset that no group needs any more.
function groups.done_with(self, now)
  local offset = self.last
  for _, group in ipairs(groups.all(self, now)) do
    offset = math.min(offset, groups.ack_offset(self, group) - 1)
  end
  return offset
end

function groups.smallest(self, group)
  return lowest(self, 'o' .. group.id) or 0
end

function groups.largest(self, group)
  local member = last_member(self, 'o' .. group.id)
  return member and number_at(member, 10) or 0
end

function groups.parked(self, group)
  return count_of(self, 'k' .. group.id)
end

-- When the next pending message is due, and when the next one expires; nil: none.
function groups.next_due(self, group)
  local due = members(self, 'd' .. group.id, 1)[1]
  local expires = members(self, 'x' .. group.id, 1)[1]
  return due and number_at(due, 10), expires and number_at(expires, 10)
end

-- Messages that a reader could have now.
function groups.available(self, group, now, is_retrying)
  local due = is_retrying and count_to(self, 'd' .. group.id, now) or 0
  if group.pending >= group.maxpending then return due end
  local new = math.max(0, self.last - math.max(group.cursor, self.first) + 1) + count_of(self, 'r' .. group.id)
  if is_retrying then new = math.min(new, group.maxpending - group.pending) end
  return due + new
end

-- ---------------------------------------------------------------------------------------- held tags

local function hold(self, group, tag)
  redis.call('HINCRBY', self.pending, 't' .. group.id .. tag, 1)
end

local function parked_prefix(group, tag)
  return 'w' .. group.id .. common.wide(#tag) .. tag
end

function groups.is_held(self, group, tag)
  return tag ~= '' and redis.call('HEXISTS', self.pending, 't' .. group.id .. tag) == 1
end

-- How many more messages may be parked: a tag that is stuck must not pull in the whole stream.
function groups.room_to_park(self, group)
  return math.max(LEAST_PARKED, group.maxpending) - groups.parked(self, group)
end

-- Deliver it later, when its tag is free.
function groups.park(self, group, offset, tag)
  add(self, 'k' .. group.id .. common.wide(offset))
  add(self, parked_prefix(group, tag) .. common.wide(offset))
end

-- A message of the tag is done with: if it was the last one, the next parked one holds the tag.
function groups.release(self, group, tag)
  if tag == '' then return end
  local field = 't' .. group.id .. tag
  if redis.call('HINCRBY', self.pending, field, -1) > 0 then return end
  local next_one = members(self, parked_prefix(group, tag), 1)[1]
  if not next_one then
    redis.call('HDEL', self.pending, field)
    return
  end
  redis.call('HSET', self.pending, field, 1)
  remove(self, next_one)
  add(self, 'r' .. group.id .. next_one:sub(-16) .. tag)
end

-- The oldest ready message, taken out: its offset and its tag, or nil. Its tag stays held.
function groups.take_ready(self, group)
  local member = members(self, 'r' .. group.id, 1)[1]
  if not member then return nil end
  remove(self, member)
  remove(self, 'k' .. member:sub(2, 25))
  return number_at(member, 10), member:sub(26)
end

-- ---------------------------------------------------------------------------------- pending messages

function groups.record(self, group, offset)
  local packed = redis.call('HGET', self.pending, group.id .. common.wide(offset))
  return packed and unpacked(RECORD, packed)
end

-- Ids of the groups that have something pending.
function groups.busy_ids(self, now)
  local ids = {}
  for _, group in ipairs(groups.all(self, now)) do
    if group.pending > 0 then ids[#ids + 1] = group.id end
  end
  return ids
end

-- Whether one of the groups with these ids has a message pending.
function groups.is_pending(self, ids, offset)
  for _, id in ipairs(ids) do
    if redis.call('HEXISTS', self.pending, id .. common.wide(offset)) == 1 then return true end
  end
  return false
end

-- How long after its n-th delivery a message is due again; at least 1, or one read could deliver for ever.
function groups.delay(group, deliveries, retry_ms)
  local place = 0
  for word in group.backoff:gmatch('%d+') do
    place, retry_ms = place + 1, tonumber(word)
    if place == deliveries then break end
  end
  return math.max(retry_ms, 1)
end

local function due_member(group, offset, record)
  return 'd' .. group.id .. common.wide(record.due) .. common.wide(offset)
end

function groups.set_due(self, group, offset, record, due)
  remove(self, due_member(group, offset, record))
  record.due = math.min(due, common.LARGEST)
  add(self, due_member(group, offset, record))
  redis.call('HSET', self.pending, group.id .. common.wide(offset), pack(RECORD, record))
end

-- A message becomes pending. In an ordered group it holds its tag, unless the tag is held for it already.
function groups.add_pending(self, group, offset, record, is_held)
  group.pending = group.pending + 1
  add(self, 'o' .. group.id .. common.wide(offset))
  add(self, due_member(group, offset, record))
  if record.expires > 0 then
    add(self, 'x' .. group.id .. common.wide(record.expires) .. common.wide(offset))
  end
  if record.tag ~= '' and not is_held then hold(self, group, record.tag) end
  redis.call('HSET', self.pending, group.id .. common.wide(offset), pack(RECORD, record))
end

function groups.drop_pending(self, group, offset, record)
  group.pending = group.pending - 1
  remove(self, 'o' .. group.id .. common.wide(offset))
  remove(self, due_member(group, offset, record))
  if record.expires > 0 then
    remove(self, 'x' .. group.id .. common.wide(record.expires) .. common.wide(offset))
  end
  redis.call('HDEL', self.pending, group.id .. common.wide(offset))
  groups.release(self, group, record.tag)
end

-- Call `each(offset, record)` for what is pending between two offsets, at most `count` times.
function groups.each_pending(self, group, low, high, count, each)
  local prefix = 'o' .. group.id
  local found = redis.call(
    'ZRANGEBYLEX', self.index, '[' .. prefix .. common.wide(low), '[' .. prefix .. common.wide(high),
    'LIMIT', 0, count)
  for _, member in ipairs(found) do
    local offset = number_at(member, 10)
    each(offset, groups.record(self, group, offset))
  end
end

-- Offsets of messages that are due, the longest due first.
function groups.due(self, group, now, count)
  local offsets = {}
  for place, member in ipairs(members_to(self, 'd' .. group.id, now, count)) do
    offsets[place] = last_number(member)
  end
  return offsets
end

-- ------------------------------------------------------------------------------------------ giving up

-- The dead-letter stream of the group, before anything changes: the caller of the script has to pass its
-- keys, and is told which ones if it did not. Where nothing can be written (the key holds another type)
-- letters are dropped: readers must go on.
function groups.open_dead_letter(self, group)
  if group.deadletter == '' then return end
  if KEYS[9] ~= group.deadletter then common.tell({'DEADLETTER', group.deadletter}) end
  if group.deadletter == self.key then
    group.dead_stream = self
    return
  end
  local is_fine, stream = pcall(common.open, 8)
  if is_fine then group.dead_stream = stream end
end

local function one_line(text)
  return (text:gsub('[\r\n]', ' '))
end

local function dead_letter(self, group, offset, record, reason, now, entry)
  return table.concat({
    'stream: ' .. one_line(self.key), 'offset: ' .. common.text(offset), 'group: ' .. one_line(group.name),
    'deliveries: ' .. record.deliveries, 'reason: ' .. one_line(reason), 'time_ms: ' .. common.text(now),
    '', entry or '',
  }, '\n')
end

-- Take a message out of what is pending; where the group has a dead-letter stream, write it there.
function groups.give_up(self, group, offset, record, reason, now)
  if group.dead_stream then
    local row = common.row_at(self, offset)
    local _, tag, entry = 0, '', false
    if row then _, tag, entry = common.message(row) end
    local letter = dead_letter(self, group, offset, record, reason, now, entry)
    common.append(group.dead_stream, now, {tag}, {letter})
  end
  local counter = reason == 'expired' and 'expired' or 'dead'
  group[counter] = group[counter] + 1
  groups.drop_pending(self, group, offset, record)
end

function groups.has_expired(self, group, now)
  return count_to(self, 'x' .. group.id, now) > 0
end

-- Give up what is too old. Whoever uses a group does this first.
function groups.expire(self, group, now)
  for _, member in ipairs(members_to(self, 'x' .. group.id, now, MOST_EXPIRED)) do
    local offset = last_number(member)
    groups.give_up(self, group, offset, groups.record(self, group, offset), 'expired', now)
  end
end

function groups.save_all(self, group)
  groups.save(self, group)
  if group.dead_stream then
    retention.apply(group.dead_stream, common.now_ms())
    common.save(group.dead_stream)
  end
  common.save(self)
end

-- Open the stream and a group for TACK and its like; nil if there is none. `check(group)` may refuse.
function groups.enter(name, now, check)
  local self = common.open(0)
  local group = groups.load(self, name, now)
  if not group then return self, nil end
  if check then check(group) end
  groups.open_dead_letter(self, group)
  groups.expire(self, group, now)
  return self, group
end

-- The body of TACK, TNACK, TRENEW and TDEAD: `each(self, group, offset, record, now)` for pending messages.
function groups.act_on_items(name, items, each, check)
  local now = common.now_ms()
  local self, group = groups.enter(name, now, check)
  if not group then return 0 end
  local count = 0
  for _, item in ipairs(items) do
    groups.each_pending(self, group, item[1], item[2], -1, function(offset, record)
      each(self, group, offset, record, now)
      count = count + 1
    end)
  end
  group.active = now
  groups.save_all(self, group)
  return count
end

-- ---------------------------------------------------------------------------------------- consumers

-- By name: {active in ms, delivered}.
function groups.consumers(self, group)
  local found = {}
  local flat = redis.call('HGETALL', self.consumers)
  for place = 1, #flat, 2 do
    if flat[place]:sub(1, 8) == group.id then found[flat[place]:sub(9)] = cmsgpack.unpack(flat[place + 1]) end
  end
  return found
end

-- How many messages each consumer has pending.
function groups.busy(self, group)
  local busy = {}
  groups.each_pending(self, group, 0, common.LARGEST, -1, function(_, record)
    busy[record.consumer] = (busy[record.consumer] or 0) + 1
  end)
  return busy
end

-- Names are often made up anew at each start of a process.
local function forget_absent(self, group, now)
  local busy = groups.busy(self, group)
  for name, activity in pairs(groups.consumers(self, group)) do
    if not busy[name] and activity[1] + CONSUMER_MS <= now then
      redis.call('HDEL', self.consumers, group.id .. name)
    end
  end
end

-- A consumer was here now, and got so many messages. Who has no name is not remembered.
function groups.touch_consumer(self, group, name, now, delivered)
  if name == '' then return end
  local field = group.id .. name
  local packed = redis.call('HGET', self.consumers, field)
  local is_crowded = not packed and (redis.call('HLEN', self.consumers) + 1) % CROWD == 0
  if is_crowded then forget_absent(self, group, now) end
  local before = packed and cmsgpack.unpack(packed)[2] or 0
  redis.call('HSET', self.consumers, field, cmsgpack.pack({now, before + delivered}))
end

-- ---------------------------------------------------------------------------------- changing a group

-- Forget what is parked; the cursor moves, so that it would come twice.
function groups.forget_parked(self, group)
  for _, member in ipairs(members(self, 'r' .. group.id)) do
    local field = 't' .. group.id .. member:sub(26)
    if redis.call('HINCRBY', self.pending, field, -1) <= 0 then redis.call('HDEL', self.pending, field) end
  end
  for _, letter in ipairs({'k', 'w', 'r'}) do
    redis.call('ZREMRANGEBYLEX', self.index, '[' .. letter .. group.id, '(' .. letter .. group.id .. ':')
  end
end

local function begin_order(self, group)
  groups.each_pending(self, group, 0, common.LARGEST, -1, function(offset, record)
    local row = common.row_at(self, offset)
    if not row then return end
    local _, tag = common.message(row)
    if tag == '' then return end
    record.tag = tag
    hold(self, group, tag)
    groups.set_due(self, group, offset, record, record.due)
  end)
  -- What was ready before has no tag yet, and may have to wait again.
  for _, member in ipairs(members(self, 'r' .. group.id)) do
    local offset = number_at(member, 10)
    local row = common.row_at(self, offset)
    local tag = row and row[2][4] or ''
    if groups.is_held(self, group, tag) then
      remove(self, member)
      add(self, parked_prefix(group, tag) .. common.wide(offset))
    elseif tag ~= '' then
      remove(self, member)
      add(self, member .. tag)
      hold(self, group, tag)
    end
  end
end

local function end_order(self, group)
  groups.each_pending(self, group, 0, common.LARGEST, -1, function(offset, record)
    redis.call('HDEL', self.pending, 't' .. group.id .. record.tag)
    record.tag = ''
    groups.set_due(self, group, offset, record, record.due)
  end)
  for _, member in ipairs(members(self, 'r' .. group.id)) do
    redis.call('HDEL', self.pending, 't' .. group.id .. member:sub(26))
    redis.call('ZREM', self.index, member)
    add(self, member:sub(1, 25))
  end
  for _, member in ipairs(members(self, 'w' .. group.id)) do
    redis.call('ZREM', self.index, member)
    add(self, 'r' .. group.id .. member:sub(-16))
  end
end

function groups.set_ordered(self, group, ordered)
  if ordered == group.ordered then return end
  group.ordered = ordered
  if ordered == 'yes' then begin_order(self, group) else end_order(self, group) end
end

-- Offsets of what is parked, ready or not.
function groups.parked_offsets(self, group)
  local offsets = {}
  for place, member in ipairs(members(self, 'k' .. group.id)) do offsets[place] = number_at(member, 10) end
  return offsets
end

-- A group that is complete but for what it has parked, and is not ordered yet: add it (timport.lua).
function groups.put_parked(self, group, offsets)
  for _, offset in ipairs(offsets) do
    add(self, 'k' .. group.id .. common.wide(offset))
    add(self, 'r' .. group.id .. common.wide(offset))
  end
end

-- A consumer that was somewhere else before (timport.lua).
function groups.put_consumer(self, group, name, active, delivered)
  redis.call('HSET', self.consumers, group.id .. name, cmsgpack.pack({active, delivered}))
end

-- Remove the group with all it has.
function groups.destroy(self, group)
  groups.each_pending(self, group, 0, common.LARGEST, -1, function(offset, record)
    redis.call('HDEL', self.pending, group.id .. common.wide(offset), 't' .. group.id .. record.tag)
  end)
  groups.forget_parked(self, group)
  for _, member in ipairs(members(self, 'v' .. group.id)) do redis.call('HDEL', self.pending, member) end
  for _, letter in ipairs({'o', 'd', 'x', 'v'}) do
    redis.call('ZREMRANGEBYLEX', self.index, '[' .. letter .. group.id, '(' .. letter .. group.id .. ':')
  end
  for name in pairs(groups.consumers(self, group)) do redis.call('HDEL', self.consumers, group.id .. name) end
  redis.call('HDEL', self.groups, group.name)
end
