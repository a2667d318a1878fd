-- uses: common groups retention producers
-- TINFO: what is known of a stream. Writes nothing.
--
-- KEYS[1..8]  the stream and its side keys (common.lua)
-- ARGV[1]     STREAM, GROUPS, CONSUMERS or PRODUCER, in capitals
-- ARGV[2]     the group (CONSUMERS), or the id (PRODUCER)
-- Reply       names and values in turn; GROUPS and CONSUMERS: an array of such; PRODUCER: null if it is unknown
--             {'EXPIRED', group}: the group has something to give up first (TPENDING does); ask again then

local function time_of(row)
  return row and select(4, common.message(row)) or 0
end

local function nodes_of(self)
  if self.first > self.last then return 0 end
  local node = retention.value(self, 'node-messages')
  return math.floor((self.last - 1) / node) - math.floor((self.first - 1) / node) + 1
end

local function about_stream(self, now)
  if not self.token then common.fail('ERR no such key') end
  local oldest = redis.call('XRANGE', self.key, '-', '+', 'COUNT', 1)[1]
  return {
    'first', self.first, 'last', self.last, 'length', redis.call('XLEN', self.key),
    'bytes', redis.call('MEMORY', 'USAGE', self.key), 'raw-bytes', self.raw, 'nodes', nodes_of(self),
    'groups', #groups.all(self, now), 'first-ms', time_of(oldest), 'last-ms', self.ms,
    'compacted-to', self.compacted, 'dirty-bytes', self.dirty,
    'producers', self.is_adopted and 0 or redis.call('HLEN', self.producers),
  }
end

local function check_expired(self, group, now)
  if groups.has_expired(self, group, now) then common.tell({'EXPIRED', group.name}) end
end

local function about_groups(self, now)
  local found = {}
  for place, group in ipairs(groups.all(self, now)) do
    check_expired(self, group, now)
    local cursor = math.max(group.cursor, self.first)
    found[place] = {
      'name', group.name, 'cursor', cursor, 'ack-offset', groups.ack_offset(self, group),
      'pending', group.pending, 'lag', math.max(0, self.last - cursor + 1) + groups.parked(self, group),
      'lost', group.lost + cursor - group.cursor,
      'delivered', group.delivered, 'acked', group.acked, 'expired', group.expired, 'dead', group.dead,
      'idle-ms', math.max(0, now - group.active), 'last-active-ms', group.active,
      'maxpending', group.maxpending, 'ttl', group.ttl, 'ordered', group.ordered,
      'maxdeliveries', group.maxdeliveries, 'backoff', group.backoff, 'deadletter', group.deadletter,
    }
  end
  return found
end

local function group_called(self, name, now)
  for _, group in ipairs(groups.all(self, now)) do
    if group.name == name then return group end
  end
end

local function about_consumers(self, now)
  local group = group_called(self, ARGV[2], now)
  if not group then return {} end
  check_expired(self, group, now)
  local pending, names, found = groups.busy(self, group), {}, {}
  local consumers = groups.consumers(self, group)
  for name in pairs(consumers) do names[#names + 1] = name end
  table.sort(names)
  for place, name in ipairs(names) do
    local active, delivered = unpack(consumers[name])
    found[place] = {
      'name', name, 'pending', pending[name] or 0, 'idle-ms', math.max(0, now - active), 'delivered', delivered,
    }
  end
  return found
end

local function about_producer(self, now)
  local sender = producers.load(self, ARGV[2], now)
  if sender.calls == '' then return false end
  local sequence, offset = producers.last_call(sender)
  return {
    'sequence', sequence, 'last', offset, 'kept', sender.is_kept and 'yes' or 'no',
    'idle-ms', math.max(0, now - sender.heard),
  }
end

local ABOUT = {
  STREAM = about_stream, GROUPS = about_groups, CONSUMERS = about_consumers, PRODUCER = about_producer,
}

return common.run(function()
  return ABOUT[ARGV[1]](common.open(0), common.now_ms())
end)
