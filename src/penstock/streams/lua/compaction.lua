-- Compaction: only the newest message of each tag stays. In steps of a bounded number of messages.
--
-- Needs common.lua, groups.lua and retention.lua. Messages of the node that is being written, and those
-- that are too young, are not looked at: they neither go nor have others go. A pass goes downwards:
--
--   meta   pass        1 while a pass runs
--          pass_at     the next offset to look at, downwards; below `first`: the tombstones are next
--          pass_end    the last offset that is looked at: of the closed nodes, and old enough
--          pass_open   bytes above pass_end
--   seen   tag -> '', or its member of `index` if its newest message is a tombstone that may go
--   index  z offset<16> bytes   tombstones that go at the end of the pass
--
-- Invariants: a message goes only when a newer one of its tag is there. Tombstones go last of all, and only
-- if nothing that they stand for stayed, so that nobody ever sees what was deleted come back. A pass
-- can therefore be left anywhere: the next one begins anew.

local function forget_pass(self)
  redis.call('DEL', self.seen)
  redis.call('ZREMRANGEBYLEX', self.index, '[z', '(z:')
  common.set(self, 'pass', 0)
end

local function bytes_above(self, offset)
  local bytes = 0
  for _, row in ipairs(common.range(self, offset + 1, self.last, common.COUNTED)) do
    local _, tag, entry = common.message(row)
    bytes = bytes + common.size(tag, entry)
  end
  return bytes
end

function compaction.begin(self)
  forget_pass(self)
  local closed_to = retention.closed_to(self)
  common.set(self, 'pass', 1)
  common.set(self, 'pass_at', closed_to)
  common.set(self, 'pass_end', closed_to)
  common.set(self, 'pass_open', bytes_above(self, closed_to))
  common.set(self, 'dirty', 0)
end

-- Whether the policy asks for a pass.
function compaction.is_due(self, now)
  if retention.value(self, 'compact') ~= 'yes' then return false end
  if self.dirty == 0 or retention.closed_to(self) <= self.compacted then return false end
  if self.dirty * 100 > retention.value(self, 'dirty-ratio') * self.raw then return true end
  local max_lag = retention.value(self, 'max-lag-ms')
  return max_lag > 0 and self.dirty_ms + max_lag <= now
end

-- Somebody else removes a message: it may be the one that a pass took for the newest of its tag. So the pass has
-- not met that tag, and what it stands for, or is a tombstone for, stays.
function compaction.forget_tag(self, tag)
  if self.pass == 0 then return end
  local seen = redis.call('HGET', self.seen, tag)
  if not seen then return end
  redis.call('HDEL', self.seen, tag)
  if seen ~= '' then redis.call('ZREM', self.index, seen) end
end

local function look_at(self, rules, offset, tag, entry, ms)
  if ms + rules.min_lag > rules.now then
    common.set(self, 'pass_end', offset - 1)
    common.set(self, 'pass_open', self.pass_open + common.size(tag, entry))
    return false
  end
  if tag == '' then return false end
  local may_go = not groups.is_pending(self, rules.ids, offset)
  local seen = redis.call('HGET', self.seen, tag)
  if seen then
    if not may_go and seen ~= '' then
      redis.call('ZREM', self.index, seen) -- the tombstone still has something to say
      redis.call('HSET', self.seen, tag, '')
    end
    return may_go
  end
  local mark = ''
  if not entry and may_go and ms + rules.tombstone <= rules.now then
    mark = 'z' .. common.wide(offset) .. common.size(tag, entry)
    redis.call('ZADD', self.index, 0, mark)
  end
  redis.call('HSET', self.seen, tag, mark)
  return false
end

local function rules_of(self, now)
  return {
    ids = groups.busy_ids(self, now), now = now,
    min_lag = retention.value(self, 'min-lag-ms'), tombstone = retention.value(self, 'tombstone-ms'),
  }
end

local function step_down(self, now, budget)
  local rows = redis.call(
    'XREVRANGE', self.key, common.text(self.pass_at) .. '-0', common.text(self.first) .. '-0', 'COUNT', budget)
  local rules, going, bytes = rules_of(self, now), {}, 0
  local at = 0
  for _, row in ipairs(rows) do
    local offset, tag, entry, ms = common.message(row)
    if look_at(self, rules, offset, tag, entry, ms) then
      going[#going + 1] = row[1]
      bytes = bytes + common.size(tag, entry)
    end
    at = offset - 1
  end
  common.set(self, 'pass_at', at)
  return common.remove(self, going, bytes)
end

local function step_tombstones(self, budget)
  local found = redis.call('ZRANGEBYLEX', self.index, '[z', '(z:', 'LIMIT', 0, budget)
  local going, bytes = {}, 0
  for place, member in ipairs(found) do
    going[place] = common.text(tonumber(member:sub(2, 17))) .. '-0'
    bytes = bytes + tonumber(member:sub(18))
  end
  if #found > 0 then redis.call('ZREM', self.index, unpack(found)) end
  return common.remove(self, going, bytes), #found < budget
end

local function finish(self, now)
  forget_pass(self)
  common.set(self, 'compacted', math.max(self.compacted, self.pass_end))
  if self.dirty == 0 then common.set(self, 'dirty_ms', now) end
  common.set(self, 'dirty', self.dirty + self.pass_open)
end

-- Go on with the pass; answers how many messages went, and whether it is over.
function compaction.step(self, now, budget)
  if self.pass_at >= self.first then return step_down(self, now, budget), false end
  local removed, is_over = step_tombstones(self, budget)
  if is_over then finish(self, now) end
  return removed, is_over
end
