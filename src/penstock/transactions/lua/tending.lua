-- What becomes due by itself: sleepers wake, leases run out, limits let somebody pass.

local FOR_WAKING = {'state', 'group', 'owner', 'priority', 'status', 'deadline_ms', 'queue'}

local function due(name, most)
  return redis.call('ZRANGEBYSCORE', prefix .. name, '-inf', string.format('%.0f', now), 'LIMIT', 0, most)
end

-- One that has not begun goes where those wait who begin; the others were in already.
local function wake(tx, record, ...)
  redis.call('ZREM', prefix .. 'sleepingZ', tx)
  requeue(tx, record, record.queue == 'In' and 'In' or 'Out', ...)
end

-- One whose record is broken stops no other.
local function for_each(found, act)
  for _, tx in ipairs(found) do
    local is_sound, caught = pcall(act, tx)
    if not is_sound then give_up_broken(tx, why(caught)) end
  end
end

local function wake_sleepers(most)
  for_each(due('sleepingZ', most), function(tx)
    local record = fields_of(tx, FOR_WAKING)
    if record.state == 'sleeping' or record.state == 'joining' then
      wake(tx, record)
    elseif record.state == 'waiting' then
      wake(tx, record, 'timed_out', '1')
    else
      redis.call('ZREM', prefix .. 'sleepingZ', tx)
    end
  end)
end

-- Its worker is silent: somebody else goes on. Whoever loses too many workers is likely to be what kills them.
local function lose_lease(tx, record)
  leave_limits(record.limits)
  local losses = (tonumber(record.losses) or 0) + 1
  redis.call('HSET', state_key(tx), 'losses', losses, 'limits', '')
  count('l', record.pipeline, record.group, record.owner)
  local worker = redis.call('HGET', state_key(tx), 'worker') or '?'
  remark(tx, 'lost', 'worker ' .. worker .. ' fell silent (' .. losses .. ' in a row)')
  if losses > setting('max_losses') then
    finish(tx, record, 'internal-error', losses .. ' workers in a row fell silent while they had it', true)
  else
    requeue(tx, record, 'Out')
  end
end

local function reclaim_leases(most)
  for_each(due('leasesZ', most), function(tx)
    redis.call('ZREM', prefix .. 'leasesZ', tx)
    redis.call('ZREM', prefix .. 'processingZ', tx)
    local record = fields_of(tx, FOR_ENDING)
    if record.state == 'running' then lose_lease(tx, record) end
  end)
end

-- Of one limit in one look.
local MOST_RELEASED = 256

local function release_held(most)
  for _, name in ipairs(due('releaseZ', most)) do
    redis.call('ZREM', prefix .. 'releaseZ', name)
    release(name, MOST_RELEASED)
  end
end

-- ms until something becomes due, -1 for never.
local function next_due_ms()
  local least = -1
  for _, name in ipairs({'sleepingZ', 'leasesZ', look_for_limits() and 'releaseZ' or nil}) do
    local head = redis.call('ZRANGE', prefix .. name, 0, 0, 'WITHSCORES')
    if head[2] and head[2] ~= 'inf' then
      local left = math.max(0, tonumber(head[2]) - now)
      if least < 0 or left < least then least = left end
    end
  end
  return least
end

-- Up to `most` of each kind of what is due; answers ms until there is something again, -1 for never.
local function tend(most)
  local left_ms = next_due_ms()
  if left_ms ~= 0 then return left_ms end
  wake_sleepers(most)
  reclaim_leases(most)
  release_held(most)
  return next_due_ms()
end
