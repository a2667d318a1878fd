-- How a transaction ends, whoever ends it; and what a child's end does to its parent.
--
-- Steps of an ending, in this order:
--   1 the record says how and when it ended
--   2 a parent that waits for it gets the result, and goes on if it was the last (or failed and there is a hurry)
--   3 a webhook is scheduled, if there is one; the archive waits for it
--   4 without one the record may be archived after the delay; what was given up is kept longer, for a retry
--   5 the end is counted, and told to those who listen

local FOR_ENDING = {
  'state', 'owner', 'pipeline', 'group', 'priority', 'queue', 'held', 'limits', 'parent', 'join', 'slot',
  'data', 'webhook', 'watched_ms', 'created_ms', 'run', 'token', 'seq', 'deadline_ms', 'undo', 'cancel', 'losses',
  'join_last', 'pending', 'width',
}

-- Nobody waits for its children any more: those that rest come to a worker, which ends them (dequeue.lua) or undoes
-- what they did; those that run are told.
local function disown(tx, record)
  if (tonumber(record.pending) or 0) <= 0 then return end
  for slot = 0, (tonumber(record.width) or 0) - 1 do
    local child = tx .. '.' .. record.join_last .. '.' .. slot
    local is_read, found = pcall(fields_of, child, {'state', 'group', 'owner', 'priority', 'worker'})
    if is_read and (found.state == 'sleeping' or found.state == 'waiting' or found.state == 'joining') then
      redis.call('ZREM', prefix .. 'sleepingZ', child)
      requeue(child, found, 'Out')
    elseif is_read and found.state == 'running' then
      redis.call('HSET', state_key(child), 'cancel', 'its parent no longer waits for it')
      redis.call('PUBLISH', 'tx.worker.' .. (found.worker or ''), child)
    end
  end
end

local function child_ended(tx, record, status, note)
  local parent = fields_of(record.parent, {'state', 'join_last', 'hurry', 'group', 'owner', 'priority'})
  if parent.state ~= 'joining' or parent.join_last ~= record.join then return end
  local result
  if status == 'success' then
    result = redis.call('HGET', state_key(tx), 'd:' .. (record.data or '0')) or 'null'
  else
    result = cjson.encode(note)
  end
  local key = state_key(record.parent)
  redis.call('HSET', key, 'c:' .. record.join .. '.' .. record.slot, status .. ' ' .. result)
  local pending = redis.call('HINCRBY', key, 'pending', -1)
  if pending <= 0 or (parent.hurry == '1' and status ~= 'success') then
    redis.call('ZREM', prefix .. 'sleepingZ', record.parent)
    requeue(record.parent, parent, 'Out')
  end
end

-- `record` has the fields of FOR_ENDING. The caller has taken it out of wherever it was. `fields` are written too.
local function finish(tx, record, status, note, is_dead, fields)
  redis.call('HSET', state_key(tx), 'state', 'ended', 'status', status, 'note', note,
    'ended_ms', string.format('%.0f', now), 'losses', 0, unpack(fields or {}))
  if record.parent then
    local is_told, caught = pcall(child_ended, tx, record, status, note)
    if not is_told then give_up_broken(record.parent, why(caught)) end
  end
  disown(tx, record)
  if is_dead then redis.call('ZADD', prefix .. 'deadZ', string.format('%.0f', now), tx) end
  if record.webhook then
    redis.call('HSET', state_key(tx), 'webhook_status', 'pending')
    redis.call('ZADD', prefix .. 'webhooksZ', string.format('%.0f', now), tx .. ' complete.' .. (record.run or '0'))
    redis.call('PUBLISH', 'tx.webhooks', prefix)
  else
    local delay_ms = is_dead and setting('dead_keep_ms') or setting('archive_delay_ms')
    redis.call('ZADD', prefix .. 'toArchiveZ', string.format('%.0f', now + delay_ms), tx)
  end
  count('e ' .. status .. ' ' .. bucket_of(now - (tonumber(record.created_ms) or now)),
    record.pipeline, record.group, record.owner)
  tell(tx, record.watched_ms, 'ended')
end
