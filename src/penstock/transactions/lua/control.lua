-- uses: common statistics queues limits ending tending
-- What people do to a transaction.
--
-- KEYS[1]     prefix of the partition
-- ARGV[1]     verb: cancel, replay, wake, priority
-- ARGV[2]     tx
-- ARGV[3]     owner who must have it, '' for any
-- ARGV[4]     who does it and why, for the trail
-- ARGV[5]     replay: number of the step to go on from; priority: 0 to 9
-- Reply       {'ok', …} or {'unknown'}, or {'refused', state, why not}
--   cancel    {'ok', 'cancelled'} or {'ok', 'requested'}: it runs or must be undone first; then, of one that waits
--             for children, what their ids begin with
--
-- A transaction that runs is told by its worker's topic, and by the next renewal of its lease.

local verb, tx, who = ARGV[1], ARGV[2], ARGV[4]
local record = fields_of(tx, FOR_ENDING)
if not record.state or (ARGV[3] ~= '' and record.owner ~= ARGV[3]) then return {'unknown'} end

local function take_out()
  leave_queue(tx, record)
  redis.call('ZREM', prefix .. 'sleepingZ', tx)
end

local VERBS = {}

function VERBS.cancel()
  if record.state == 'ended' then return {'refused', 'ended', 'it has ended already'} end
  local reply = {'ok', 'requested'}
  remark(tx, 'cancel', who)
  redis.call('HSET', state_key(tx), 'cancel', who)
  if record.state == 'running' then
    redis.call('PUBLISH', 'tx.worker.' .. (redis.call('HGET', state_key(tx), 'worker') or ''), tx)
    return reply
  end
  if record.state == 'joining' then
    local join = redis.call('HGET', state_key(tx), 'join_last')
    reply[3] = tx .. '.' .. join .. '.'
  end
  take_out()
  if record.undo and record.undo ~= '' then
    requeue(tx, record, 'Admin')
  else
    reply[2] = 'cancelled'
    finish(tx, record, 'cancelled', who)
  end
  return reply
end

function VERBS.wake()
  if record.state ~= 'sleeping' and record.state ~= 'waiting' then
    return {'refused', record.state, 'it neither sleeps nor waits'}
  end
  remark(tx, 'wake', who)
  wake(tx, record)
  return {'ok'}
end

function VERBS.priority()
  if record.state == 'ended' then return {'refused', 'ended', 'it has ended already'} end
  remark(tx, 'priority', who .. ': ' .. ARGV[5])
  redis.call('HSET', state_key(tx), 'priority', ARGV[5])
  if record.state == 'queued' and record.held then
    local key = prefix .. 'heldZ:' .. record.held
    local turn = (tonumber(redis.call('ZSCORE', key, tx)) or 0) % BAND
    redis.call('ZADD', key, 'XX', string.format('%.0f', (9 - tonumber(ARGV[5])) * BAND + turn), tx)
  elseif record.state == 'queued' then
    leave_queue(tx, record)
    push(tx, record.queue, record.group, record.owner, tonumber(ARGV[5]))
  end
  return {'ok'}
end

-- Everything that was recorded for this step and later ones goes, so that they run as if for the first time.
local function forget_steps(step)
  local doomed = {}
  for _, name in ipairs(redis.call('HKEYS', state_key(tx))) do
    local kind, number = name:match('^([doz]):(%d+)')
    number = tonumber(number)
    if kind and (kind == 'd' and number > step or kind ~= 'd' and number >= step) then
      doomed[#doomed + 1] = name
    end
  end
  for _, name in ipairs({'fate', 'cancel', 'awaits', 'timed_out', 'notified_ms', 'webhook_status', 'archive_batch',
    'has_output'}) do
    doomed[#doomed + 1] = name
  end
  for _, name in ipairs(doomed) do redis.call('HDEL', state_key(tx), name) end
  -- What earlier steps did stays to be undone.
  local undo = {}
  for number in (record.undo or ''):gmatch('%d+') do
    if tonumber(number) < step then undo[#undo + 1] = number end
  end
  redis.call('HSET', state_key(tx), 'undo', table.concat(undo, ' '))
end

function VERBS.replay()
  if record.state ~= 'ended' then return {'refused', record.state, 'it has not ended'} end
  if record.parent then return {'refused', 'ended', 'it is a part of another: replay ' .. record.parent} end
  local step = tonumber(ARGV[5])
  local data = step
  while data > 0 and redis.call('HEXISTS', state_key(tx), 'd:' .. data) == 0 do data = data - 1 end
  forget_steps(step)
  redis.call('ZREM', prefix .. 'toArchiveZ', tx)
  redis.call('ZREM', prefix .. 'deadZ', tx)
  redis.call('ZREM', prefix .. 'webhooksZ', tx .. ' complete.' .. (record.run or '0'))
  redis.call('HINCRBY', state_key(tx), 'run', 1)
  redis.call('HDEL', state_key(tx), 'deadline_ms', 'ended_ms', 'note')
  remark(tx, 'replay', who .. ': from step ' .. step)
  requeue(tx, record, 'Admin', 'status', 'running', 'step', step, 'data', data, 'attempt', 0, 'losses', 0,
    'output', '')
  tell(tx, record.watched_ms, 'replay')
  return {'ok'}
end

local reply = VERBS[verb]()
save_statistics()
return reply
