-- uses: common groups retention line
-- TREAD: read messages from an offset, or for a group.
--
-- KEYS[1..8]   the stream and its side keys (common.lua); KEYS[9..16] those of the group's dead-letter stream
-- ARGV[1]      the token of the stream that the reader waits for; empty: it does not wait yet
-- ARGV[2]      its ticket in the line (line.lua); 0: none yet
-- ARGV[3]      1: its time is up, so that it must not wait any longer
-- ARGV[4…]     what follows the key in the command
-- Reply        the messages, as the command answers them; null when the time is up
--              {'WAIT', token, block-ms, after, look-again-ms, ticket}: there is nothing, and BLOCK was asked
--              for. Wait for an entry above `after`, no longer than look-again-ms, then ask again
--              {'DEADLETTER', key}: ask again with the keys of that stream
-- Writes nothing without GROUP.

-- A stream that is deleted is noticed that late, at most.
local LOOK_AGAIN_MS = 1000
-- When something is pending: TACK can make room, and TNACK a message due, but they wake nobody.
local LOOK_FOR_ROOM_MS = 250
-- When others in the line are to be served first.
local NEXT_IN_LINE_MS = 10

-- ------------------------------------------------------------------------------------------- parsing

-- Words of the command with the names of their operands.
local OPTIONS = {
  BLOCK = {'block_ms'}, GROUP = {'group'}, CONSUMER = {'consumer'}, RETRY = {'retry_ms', 'expire_ms'},
  WITHINFO = {}, SKIPNULL = {}, REV = {}, WITHTIME = {}, WITHCOUNT = {},
}

local function parse_options(ask)
  local place = 6
  while place <= #ARGV do
    local word = ARGV[place]:upper()
    local operands = OPTIONS[word]
    if not operands or place + #operands > #ARGV then common.syntax_error() end
    ask[word] = true
    for at, name in ipairs(operands) do ask[name] = ARGV[place + at] end
    place = place + 1 + #operands
  end
end

local function parse()
  local ask = {token = ARGV[1], ticket = tonumber(ARGV[2]), is_final = ARGV[3] == '1'}
  parse_options(ask)
  if not ask.GROUP and (ask.RETRY or ask.CONSUMER or ask.WITHCOUNT) then
    common.fail('ERR RETRY, CONSUMER and WITHCOUNT need GROUP')
  end
  if ask.GROUP and (ask.REV or ask.SKIPNULL) then
    common.fail('ERR REV and SKIPNULL do not go with GROUP')
  end
  if ask.group == '' then common.fail('ERR the name of a group cannot be empty') end
  if ask.GROUP then
    ask.offset = common.start(ARGV[4])
  else
    ask.offset = ask.REV and ARGV[4] == '$' and common.LARGEST or common.offset(ARGV[4])
  end
  ask.count = math.min(common.whole(ARGV[5]), common.MOST_MESSAGES)
  if ask.BLOCK then ask.block_ms = common.whole(ask.block_ms) end
  if ask.RETRY then
    ask.retry_ms, ask.expire_ms = common.whole(ask.retry_ms), common.whole(ask.expire_ms)
    if ask.retry_ms < 1 then common.fail('ERR retry-ms must be at least 1') end
  end
  ask.may_wait = ask.BLOCK and ask.count > 0
  return ask
end

-- -------------------------------------------------------------------------------------------- shaping

-- The reply that is being made: rows, and how many bytes they have.
local function new_reply()
  return {rows = {}, bytes = 0}
end

local function is_full(reply, count)
  return #reply.rows >= count or reply.bytes >= common.MOST_BYTES
end

local function add_null(reply)
  reply.rows[#reply.rows + 1] = false
end

local function add_message(reply, ask, offset, tag, entry, ms, deliveries)
  local row = {offset, tag, entry}
  if ask.WITHTIME then row[#row + 1] = ms end
  if ask.WITHCOUNT then row[#row + 1] = deliveries end
  reply.rows[#reply.rows + 1] = row
  reply.bytes = reply.bytes + (tag and common.size(tag, entry) or 0)
end

local function with_info(self, ask, rows)
  if ask.WITHINFO then table.insert(rows, 1, {self.first, self.last}) end
  return rows
end

-- --------------------------------------------------------------------------------------- plain readers

local function read_up(self, ask, reply)
  local place = ask.offset == 0 and self.first or ask.offset
  local stop = self.last
  if not ask.SKIPNULL then stop = math.min(stop, place + ask.count - 1) end
  while place <= stop and not is_full(reply, ask.count) do
    local rows = common.range(self, place, stop, math.min(common.CHUNK, ask.count - #reply.rows))
    for _, row in ipairs(rows) do
      local offset, tag, entry, ms = common.message(row)
      if not ask.SKIPNULL then
        for _ = place, offset - 1 do add_null(reply) end
      end
      add_message(reply, ask, offset, tag, entry, ms)
      place = offset + 1
      if is_full(reply, ask.count) then return end
    end
    if #rows == 0 then
      if not ask.SKIPNULL then
        for _ = place, stop do add_null(reply) end
      end
      return
    end
  end
end

local function read_down(self, ask, reply)
  local place = math.min(ask.offset == 0 and self.first or ask.offset, self.last)
  local stop = ask.SKIPNULL and self.first or math.max(1, place - ask.count + 1)
  while place >= stop and not is_full(reply, ask.count) do
    local rows = redis.call(
      'XREVRANGE', self.key, common.text(place) .. '-0', common.text(stop) .. '-0',
      'COUNT', math.min(common.CHUNK, ask.count - #reply.rows))
    for _, row in ipairs(rows) do
      local offset, tag, entry, ms = common.message(row)
      if not ask.SKIPNULL then
        for _ = offset + 1, place do add_null(reply) end
      end
      add_message(reply, ask, offset, tag, entry, ms)
      place = offset - 1
      if is_full(reply, ask.count) then return end
    end
    if #rows == 0 then
      if not ask.SKIPNULL then
        for _ = stop, place do add_null(reply) end
      end
      return
    end
  end
end

-- Whether there is a message at or above the offset.
local function has_any(self, ask, reply)
  if reply.bytes > 0 then return true end
  for _, row in ipairs(reply.rows) do
    if row then return true end
  end
  return self.token and #common.range(self, ask.offset, common.LARGEST, 1) > 0
end

local function read_plain(self, ask)
  local reply = new_reply()
  if ask.count > 0 and self.token then
    if ask.REV then read_down(self, ask, reply) else read_up(self, ask, reply) end
  end
  if not ask.may_wait or has_any(self, ask, reply) then return with_info(self, ask, reply.rows) end
  if ask.is_final then return false end
  local after = self.last
  if not ask.REV then after = math.max(after, ask.offset - 1) end
  return {'WAIT', self.token or '', ask.block_ms, common.text(after), LOOK_AGAIN_MS, 0}
end

-- ---------------------------------------------------------------------------------------------- groups

-- What becomes pending when a message is delivered for the first time.
local function new_record(group, ask, now, tag)
  return {
    consumer = ask.consumer or '', deliveries = 1, first_ms = now, tag = tag,
    due = math.min(now + groups.delay(group, 1, ask.retry_ms), common.LARGEST),
    expires = ask.expire_ms > 0 and math.min(now + ask.expire_ms, common.LARGEST) or 0,
  }
end

local function redeliver(self, group, ask, reply, offset, now)
  local record = groups.record(self, group, offset)
  if record.expires > 0 and record.expires <= now then
    return groups.give_up(self, group, offset, record, 'expired', now)
  end
  if group.maxdeliveries > 0 and record.deliveries >= group.maxdeliveries then
    return groups.give_up(self, group, offset, record, 'deliveries', now)
  end
  local row = common.row_at(self, offset)
  if not row then
    add_message(reply, ask, offset, false, false, false, record.deliveries + 1)
    return groups.give_up(self, group, offset, record, 'evicted', now)
  end
  local _, tag, entry, ms = common.message(row)
  record.deliveries = record.deliveries + 1
  record.consumer = ask.consumer or ''
  groups.set_due(self, group, offset, record, now + groups.delay(group, record.deliveries, ask.retry_ms))
  add_message(reply, ask, offset, tag, entry, ms, record.deliveries)
  group.delivered = group.delivered + 1
end

local function take_due(self, group, ask, reply, limit, now)
  while not is_full(reply, limit) do
    local offsets = groups.due(self, group, now, math.min(common.CHUNK, limit - #reply.rows))
    if #offsets == 0 then return end
    for _, offset in ipairs(offsets) do
      if is_full(reply, limit) then return end
      redeliver(self, group, ask, reply, offset, now)
    end
  end
end

-- A message for the first time; `is_held`: an ordered group has held its tag for it since it was parked.
local function deliver(self, group, ask, reply, now, message, is_held)
  local offset, tag, entry, ms = unpack(message)
  add_message(reply, ask, offset, tag, entry, ms, 1)
  group.delivered = group.delivered + 1
  group.high = math.max(group.high, offset)
  local held = group.ordered == 'yes' and tag or ''
  if ask.RETRY then
    groups.add_pending(self, group, offset, new_record(group, ask, now, held), is_held)
  elseif is_held then
    groups.release(self, group, held)
  end
end

local function has_room(group, reply, limit)
  return not is_full(reply, limit) and group.pending < group.maxpending
end

local function take_ready(self, group, ask, reply, limit, now)
  while has_room(group, reply, limit) do
    local offset, tag = groups.take_ready(self, group)
    if not offset then return end
    local row = common.row_at(self, offset)
    if row then
      deliver(self, group, ask, reply, now, {common.message(row)}, true)
    else
      group.lost = group.lost + 1
      groups.release(self, group, tag)
    end
  end
end

-- Whether a message that comes next has to wait for others of its tag.
local function is_parked(self, group, offset, tag)
  if group.ordered ~= 'yes' or not groups.is_held(self, group, tag) then return false end
  groups.park(self, group, offset, tag)
  return true
end

local function take_new(self, group, ask, reply, limit, now)
  if group.cursor < self.first then
    group.lost = group.lost + self.first - group.cursor
    group.cursor = self.first
  end
  local room_to_park = groups.room_to_park(self, group)
  while has_room(group, reply, limit) and group.cursor <= self.last and room_to_park > 0 do
    local rows = common.range(self, group.cursor, self.last, math.min(common.CHUNK, limit - #reply.rows))
    for _, row in ipairs(rows) do
      if not has_room(group, reply, limit) or room_to_park <= 0 then return end
      local offset, tag, entry, ms = common.message(row)
      group.lost = group.lost + offset - group.cursor
      group.cursor = offset + 1
      -- After TGROUP SET OFFSET the cursor meets messages that are pending already.
      local is_pending = offset <= group.high and groups.record(self, group, offset)
      if not is_pending and is_parked(self, group, offset, tag) then
        room_to_park = room_to_park - 1
      elseif not is_pending then
        deliver(self, group, ask, reply, now, {offset, tag, entry, ms}, false)
      end
    end
    if #rows == 0 then
      group.lost = group.lost + self.last + 1 - group.cursor
      group.cursor = self.last + 1
    end
  end
end

local function take(self, group, ask, limit, now)
  local reply = new_reply()
  if ask.RETRY then take_due(self, group, ask, reply, limit, now) end
  if group.pending < group.maxpending then
    take_ready(self, group, ask, reply, limit, now)
    take_new(self, group, ask, reply, limit, now)
  end
  return reply.rows
end

-- How long a reader may sleep before it has to ask again.
local function look_again_ms(self, group, ask, now, others_first)
  if others_first then return NEXT_IN_LINE_MS end
  local due, expires = groups.next_due(self, group)
  local may_change = group.pending > 0 or group.cursor <= self.last
  local pause = may_change and LOOK_FOR_ROOM_MS or LOOK_AGAIN_MS
  if group.ttl > 0 then pause = math.min(pause, math.ceil(group.ttl / 2)) end
  if due and ask.RETRY then pause = math.min(pause, due - now) end
  if expires then pause = math.min(pause, expires - now) end
  return math.max(1, pause)
end

local function read_group(self, ask)
  local now = common.now_ms()
  local is_waiting = ask.token ~= ''
  local group = groups.load(self, ask.group, now, is_waiting)
  if group then
    groups.open_dead_letter(self, group)
  elseif is_waiting then
    common.fail('UNBLOCKED the group ' .. ask.group .. ' is gone')
  end
  group = group or groups.new(self, ask.group, ask.offset, now)
  groups.expire(self, group, now)
  local available, limit = 0, ask.count
  if ask.may_wait then
    available = groups.available(self, group, now, ask.RETRY)
    limit = math.min(limit, line.share(self, group, ask.ticket, available, now))
  end
  local rows = take(self, group, ask, limit, now)
  local reply = rows
  if #rows > 0 or not ask.may_wait then
    reply = with_info(self, ask, rows)
  elseif ask.is_final then
    reply = false
  else
    ask.ticket = line.join(self, group, ask.ticket)
    reply = {
      'WAIT', self.token, ask.block_ms, common.text(self.last),
      look_again_ms(self, group, ask, now, available > 0 and limit == 0), ask.ticket,
    }
  end
  if ask.ticket > 0 and (not reply or reply[1] ~= 'WAIT') then
    line.leave(self, line.member(group, ask.ticket))
  end
  group.active = now
  if ask.consumer then groups.touch_consumer(self, group, ask.consumer, now, #rows) end
  groups.save_all(self, group)
  return reply
end

return common.run(function()
  local ask = parse()
  local self = common.open(0)
  common.check_token(self, ask.token)
  if ask.GROUP then return read_group(self, ask) end
  return read_plain(self, ask)
end)
