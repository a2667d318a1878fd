-- uses: common groups retention producers
-- TIMPORT: make a stream that is copied from elsewhere.
--
-- KEYS[1..8]  the stream and its side keys (common.lua)
-- ARGV[1]     BEGIN, ADD or END
-- ARGV[2…]    BEGIN: first, node-messages, node-bytes (which a policy brings)
--             ADD: upto, compacted-to, then offset, time-ms, kind (e: entry, t: tombstone), tag, entry of each message
--             END: the words of TEXPORT (texport.lua)
-- Reply       OK
--
-- BEGIN replaces whatever is there; ADD ignores what is there, and END what was set before: both may be repeated.

local place = 1

local function word()
  place = place + 1
  if not ARGV[place] then common.syntax_error() end
  return ARGV[place]
end

local function number()
  return common.whole(word())
end

local function numbers(count)
  local found = {}
  for at = 1, count do found[at] = number() end
  return found
end

local function begun()
  local self = common.open(0)
  if not self.token then common.fail('ERR the stream is not there: TIMPORT BEGIN comes first') end
  return self
end

-- The last offset also where Redis keeps it: it must not be given twice, even if its message is gone.
local function set_last(self, last)
  common.set(self, 'last', last)
  if last > 0 then redis.call('XSETID', self.key, common.text(last) .. '-0') end
end

-- ---------------------------------------------------------------------------------------- begin, add

local function begin()
  local first = common.offset(word())
  if first == 0 or first > common.LARGEST then common.fail('ERR the stream is full') end
  numbers(2)
  redis.call('DEL', unpack(KEYS, 1, 8))
  local self = common.open(0)
  common.ensure(self)
  common.set(self, 'first', first)
  common.set(self, 'compacted', first - 1)
  set_last(self, first - 1)
  return self
end

local function parse_messages(self, upto)
  local messages, last, ms = {}, self.last, self.ms
  while place < #ARGV do
    local offset, time = common.offset(word()), number()
    local kind, tag, entry = word(), word(), word()
    if offset > self.last then
      if offset <= last or offset > upto then common.fail('ERR invalid offset') end
      if time < ms then common.fail('ERR times of messages run backwards') end
      messages[#messages + 1] = {offset, time, tag, kind == 'e' and entry}
      last, ms = offset, time
    end
  end
  return messages
end

local function add_message(self, offset, ms, tag, entry, is_dirty)
  local id = common.text(offset) .. '-0'
  if entry then
    redis.call('XADD', self.key, id, 'm', common.text(ms), 't', tag, 'e', entry)
  else
    redis.call('XADD', self.key, id, 'm', common.text(ms), 't', tag)
  end
  local bytes = common.size(tag, entry)
  common.set(self, 'ms', ms)
  common.set(self, 'raw', self.raw + bytes)
  if is_dirty then
    if self.dirty == 0 then common.set(self, 'dirty_ms', ms) end
    common.set(self, 'dirty', self.dirty + bytes)
  end
end

local function add()
  local upto, compacted = common.offset(word()), common.offset(word())
  if upto > common.LARGEST then common.fail('ERR the stream is full') end
  local self = begun()
  if upto < self.last then return self end
  for _, message in ipairs(parse_messages(self, upto)) do
    local offset, ms, tag, entry = unpack(message)
    add_message(self, offset, ms, tag, entry, offset > compacted)
  end
  set_last(self, upto)
  common.set(self, 'compacted', math.max(self.compacted, math.min(compacted, upto)))
  return self
end

-- ----------------------------------------------------------------------------------------------- end

local function parse_policy()
  local policy, count = {}, number()
  for _ = 1, count do
    local name, value = word(), word()
    policy[name] = tonumber(value) or value
  end
  return count > 0 and policy or nil
end

local function parse_producer()
  local sender = {id = word(), heard = number(), is_kept = number() == 1}
  sender.numbers = numbers(3 * number())
  return sender
end

local function parse_group()
  local group = {
    name = word(), cursor = number(), high = number() - 1, lost = number(), delivered = number(), acked = number(),
    expired = number(), dead = number(), active = number(), maxpending = number(), ttl = number(),
    ordered = word(), maxdeliveries = number(), backoff = word(), deadletter = word(), pending = 0,
  }
  local parts = {consumers = {}, pending = {}}
  for at = 1, number() do parts.consumers[at] = {word(), number(), number()} end
  for at = 1, number() do
    parts.pending[at] = {
      first = number(), last = number(), consumer = word(), deliveries = number(), first_ms = number(),
      due = number(), expires = number(),
    }
  end
  parts.parked = numbers(number())
  return group, parts
end

local function put_group(self, group, parts)
  common.set(self, 'ids', self.ids + 1)
  group.id = string.format('%08d', self.ids)
  for _, consumer in ipairs(parts.consumers) do groups.put_consumer(self, group, unpack(consumer)) end
  for _, range in ipairs(parts.pending) do
    for offset = range.first, range.last do
      groups.add_pending(self, group, offset, {
        consumer = range.consumer, deliveries = range.deliveries, first_ms = range.first_ms, due = range.due,
        expires = range.expires, tag = '',
      }, true)
    end
  end
  groups.put_parked(self, group, parts.parked)
  local ordered = group.ordered
  group.ordered = 'no'
  groups.set_ordered(self, group, ordered)
  groups.save(self, group)
end

local function finish()
  local ms, policy = number(), parse_policy()
  local senders, found, parts = {}, {}, {}
  for at = 1, number() do senders[at] = parse_producer() end
  for at = 1, number() do found[at], parts[at] = parse_group() end
  if place < #ARGV then common.syntax_error() end
  local self = begun()
  redis.call('DEL', unpack(KEYS, 3, 8))
  redis.call('HDEL', self.meta, 'policy')
  common.set(self, 'ms', math.max(self.ms, ms))
  if policy then redis.call('HSET', self.meta, 'policy', cmsgpack.pack(policy)) end
  for _, sender in ipairs(senders) do
    producers.put(self, sender.id, sender.heard, sender.is_kept, sender.numbers)
  end
  for at, group in ipairs(found) do put_group(self, group, parts[at]) end
  return self
end

local ACTIONS = {BEGIN = begin, ADD = add, END = finish}

return common.run(function()
  local action = ACTIONS[ARGV[1]:upper()]
  if not action then common.syntax_error() end
  common.save(action())
  return redis.status_reply('OK')
end)
