-- uses: common statistics queues limits ending tending
-- Take transactions for a worker: what people asked for first, then who goes on, then who begins.
--
-- KEYS[1]     prefix of the partition
-- ARGV[1]     worker
-- ARGV[2]     lease in ms
-- ARGV[3]     how many at most
-- ARGV[4…]    node groups
-- Reply       {now, ms until something becomes due or -1, 1 if more may be waiting,
--              {tx, token, {field, value, …}}, …}: the records as they were before they were taken
--
-- For each: 1 it has a record, 2 it was not ended meanwhile, 3 it is queued, 4 its parent still waits for it,
-- 5 its limits let it pass, 6 it runs from now, 7 under a lease. One that fails a check stops no other.

local worker, lease_ms, most = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local ORPHANED = 'its parent no longer waits for it'
-- Bytes of records in one reply, but for the last.
local MOST_BYTES = 4194304
-- Entries looked at in one call, also those that are put aside.
local MOST_LOOKS = most + 256

local now_text, until_text = string.format('%.0f', now), string.format('%.0f', now + lease_ms)
local reply, since, leases = {now, -1, 0}, {}, {}
local looks, bytes, taken = 0, 0, 0

local function has_parent(record)
  if not record.parent then return true end
  local parent = fields_of(record.parent, {'state', 'join_last'})
  return parent.state == 'joining' and parent.join_last == record.join
end

-- Says whether the worker has it now.
local function take(tx, score)
  local flat = redis.call('HGETALL', state_key(tx))
  if #flat == 0 then return false end
  local record = as_table(flat)
  if record.state ~= 'queued' then return false end
  if not (record.owner and record.pipeline and record.group and record.step) then
    error('its record lacks owner, pipeline, group or step')
  end
  local is_orphan = not has_parent(record)
  if is_orphan and (record.undo or '') == '' then
    finish(tx, record, 'cancelled', ORPHANED)
    return false
  end
  local limits = enter_limits(tx, record, score)
  if not limits then return false end
  if is_orphan then -- a worker has to undo what it has done
    redis.call('HSET', state_key(tx), 'cancel', ORPHANED)
    flat[#flat + 1], flat[#flat + 2] = 'cancel', ORPHANED
  end
  local token = (tonumber(record.token) or 0) + 1
  redis.call('HSET', state_key(tx), 'state', 'running', 'token', token, 'seq', 0, 'worker', worker,
    'taken_ms', now_text, 'limits', limits)
  since[#since + 1], since[#since + 2] = now_text, tx
  leases[#leases + 1], leases[#leases + 2] = until_text, tx
  reply[#reply + 1] = {tx, token, flat}
  taken = taken + 1
  for place = 2, #flat, 2 do bytes = bytes + #flat[place] end
  count('s ' .. bucket_of(now - (tonumber(record.queued_ms) or now)), record.pipeline, record.group, record.owner)
  return true
end

local function drain(queue, group)
  while taken < most and looks < MOST_LOOKS and bytes < MOST_BYTES do
    -- By few when records are large: what is popped must be taken.
    local wanted = math.min(most - taken, 64)
    local found = redis.call('ZPOPMIN', queue_key(queue, group), wanted)
    local scores = {}
    for place = 1, #found, 2 do
      local is_sound, is_taken = pcall(take, found[place], found[place + 1])
      if not is_sound then
        give_up_broken(found[place], why(is_taken))
      elseif is_taken then
        scores[#scores + 1] = tonumber(found[place + 1])
      end
    end
    if #found > 0 then serve_turns(queue, group, scores, #found < 2 * wanted and not has_limits) end
    looks = looks + wanted
    if #found < 2 * wanted then return end
  end
  reply[3] = 1
end

local left_ms = tend(100)
for _, queue in ipairs({'Admin', 'Out', 'In'}) do
  for place = 4, #ARGV do
    local limit = limit_of('g:' .. ARGV[place])
    if not (limit and limit.paused) then drain(queue, ARGV[place]) end
  end
end
if #since > 0 then
  redis.call('ZADD', prefix .. 'processingZ', unpack(since))
  redis.call('ZADD', prefix .. 'leasesZ', unpack(leases))
end
save_statistics()
if has_limits then
  left_ms = next_due_ms() -- whoever was put aside just now is to be looked at
elseif taken > 0 and (left_ms < 0 or left_ms > lease_ms) then
  left_ms = lease_ms
end
reply[2] = left_ms
return reply
