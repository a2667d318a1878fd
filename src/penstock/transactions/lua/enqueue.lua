-- uses: common statistics queues limits
-- Begin a transaction: save its record and put it into the queue of those who begin.
--
-- KEYS[1]     prefix of the partition
-- ARGV[1]     tx
-- ARGV[2]     owner
-- ARGV[3..5]  external id ('' for none), how long it stays unique (ms), fingerprint of what was asked for
-- ARGV[6..7]  pipeline; version ('' for the active one)
-- ARGV[8]     priority, 0 to 9 ('' for the pipeline's)
-- ARGV[9]     ms until it begins; 0 for at once
-- ARGV[10]    deadline in ms from now ('' for the pipeline's; 0 for none)
-- ARGV[11…]   further fields of the record: name, value, …
-- Reply       {'ok', tx, version, group, now}
--             {'same', tx}: this external id was started with the same fingerprint
--             {'duplicate', tx}: … with another one
--             {'unknown', pipeline}, {'unknown-version', version}, {'not-startable', pipeline}
--             {'full', group, how many wait, how many may}; {'exists', tx}
-- A refusal writes nothing, so an external id is never used up by a start that failed.

local tx, owner, external_id, pipeline, version = ARGV[1], ARGV[2], ARGV[3], ARGV[6], ARGV[7]

-- 1 the external id
local claim
if external_id ~= '' then
  claim = prefix .. 'externalId:' .. owner .. ' ' .. external_id
  local taken = redis.call('GET', claim)
  if taken then
    local holder, fingerprint = taken:match('^(%S+) (%S+)$')
    if holder == tx then return {'exists', tx} end
    if fingerprint == ARGV[5] then return {'same', holder} end
    return {'duplicate', holder}
  end
end

-- 2 not there yet
if redis.call('EXISTS', state_key(tx)) == 1 then return {'exists', tx} end

-- 3 the pipeline says which group runs it
local head = prefix .. 'pipelineH:' .. pipeline
local text
if version == '' then
  text = redis.call('HGET', head, 'active')
  if not text then return {'unknown', pipeline} end
  version, text = text:match('^(%S+) (.+)$')
else
  text = redis.call('HGET', head, 'v:' .. version)
  if not text then
    if redis.call('EXISTS', head) == 0 then return {'unknown', pipeline} end
    return {'unknown-version', version}
  end
end
local group, deadline_ms, priority, is_startable = text:match('^(%S+) (%S+) (%S+) (%S+)$')
if is_startable ~= '1' then return {'not-startable', pipeline} end
if ARGV[8] ~= '' then priority = ARGV[8] end
if ARGV[10] ~= '' then deadline_ms = ARGV[10] end
deadline_ms = tonumber(deadline_ms)

-- 4 the queue, if it has room
local limit = limit_of('g:' .. group)
if limit and limit.queued > 0 then
  local held = tonumber(redis.call('HGET', prefix .. 'fairH:In:' .. group, 'held') or 0)
  local waiting = redis.call('ZCARD', queue_key('In', group)) + held
  if waiting >= limit.queued then return {'full', group, waiting, limit.queued} end
end

-- 5 the record
local delay_ms = tonumber(ARGV[9])
local now_text = string.format('%.0f', now)
local fields = {
  'state', delay_ms > 0 and 'sleeping' or 'queued', 'status', 'running', 'owner', owner, 'pipeline', pipeline,
  'version', version, 'group', group, 'queue', 'In', 'priority', priority, 'token', '0', 'step', '0', 'data', '0',
  'created_ms', now_text, 'queued_ms', now_text,
}
if external_id ~= '' then
  fields[#fields + 1] = 'external_id'
  fields[#fields + 1] = external_id
end
if deadline_ms > 0 then
  fields[#fields + 1] = 'deadline_ms'
  fields[#fields + 1] = string.format('%.0f', now + delay_ms + deadline_ms)
end
for place = 11, #ARGV do fields[#fields + 1] = ARGV[place] end
redis.call('HSET', state_key(tx), unpack(fields))
redis.call('ZADD', prefix .. 'indexZ', now_text, tx)
redis.call('ZADD', prefix .. 'ownerZ:' .. owner, now_text, tx)

-- 6 into the queue, or to sleep
if delay_ms > 0 then
  local wake_text = string.format('%.0f', now + delay_ms)
  redis.call('HSET', state_key(tx), 'wakes_ms', wake_text)
  redis.call('ZADD', prefix .. 'sleepingZ', wake_text, tx)
  if redis.call('ZRANGE', prefix .. 'sleepingZ', 0, 0)[1] == tx then
    redis.call('PUBLISH', 'tx.agenda', prefix)
  end
else
  push(tx, 'In', group, owner, tonumber(priority))
end

-- 7 the claim comes last
if claim then redis.call('SET', claim, tx .. ' ' .. ARGV[5], 'PX', ARGV[4]) end

-- 8 statistics
count('q', pipeline, group, owner)
save_statistics()
return {'ok', tx, version, group, now}
