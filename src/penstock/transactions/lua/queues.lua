-- Queues: by priority, and inside one priority fair between owners.
--
-- A place in a queue is a score: the band of its priority (9 is the most urgent), and in the band a tag that
-- counts turns. An owner's next place is one turn after its last one, but never before the turn that is being
-- served; so whoever queues a thousand takes a thousand turns, and whoever queues one is served in the next.
--   fairH:<q>:<group>   hash: `<priority>` -> turn that is being served; `<priority> <owner>` -> its last turn.
--                       `held` -> how many of the queue are put aside (limits.lua). It goes with the last who waits.
-- Wake-ups: the topic `tx.work.<group>` gets the prefix whenever a queue stops being empty. A worker that asked
-- for more than it got has seen its queues empty, so it hears of everything that comes after.

local BAND = 2 ^ 46

local function queue_key(queue, group) return prefix .. 'q' .. queue .. 'Z:' .. group end

local function put_in_queue(tx, queue, group, score)
  local key = queue_key(queue, group)
  redis.call('ZADD', key, score, tx)
  if redis.call('ZCARD', key) == 1 then redis.call('PUBLISH', 'tx.work.' .. group, prefix) end
end

-- Its record must have (or get) the fields queue, group, owner and priority as they are given here.
local function push(tx, queue, group, owner, priority)
  local fair = prefix .. 'fairH:' .. queue .. ':' .. group
  local mine = priority .. ' ' .. owner
  local turns = redis.call('HMGET', fair, priority, mine)
  local turn = math.max(tonumber(turns[1] or 0), tonumber(turns[2] or 0)) + 1
  redis.call('HSET', fair, mine, string.format('%.0f', turn))
  put_in_queue(tx, queue, group, string.format('%.0f', (9 - priority) * BAND + turn))
end

-- Turns begin anew when nobody waits any more and nobody is put aside; says whether they do.
local function forget_turns(queue, group)
  if redis.call('EXISTS', queue_key(queue, group)) == 1 then return false end
  local fair = prefix .. 'fairH:' .. queue .. ':' .. group
  if tonumber(redis.call('HGET', fair, 'held') or 0) > 0 then return false end
  redis.call('DEL', fair)
  return true
end

-- `scores` of those who were taken: their turns are being served. (Whoever was put aside has not had a turn.)
-- `is_empty`: nobody waits in the queue, or is put aside.
local function serve_turns(queue, group, scores, is_empty)
  if is_empty then
    redis.call('DEL', prefix .. 'fairH:' .. queue .. ':' .. group)
    return
  end
  if forget_turns(queue, group) then return end
  local served = {}
  for _, score in ipairs(scores) do served[9 - math.floor(score / BAND)] = score % BAND end
  for priority, turn in pairs(served) do
    redis.call('HSET', prefix .. 'fairH:' .. queue .. ':' .. group, priority, string.format('%.0f', turn))
  end
end

-- So many more (or fewer) of a queue are put aside.
local function count_held(queue, group, number)
  redis.call('HINCRBY', prefix .. 'fairH:' .. queue .. ':' .. group, 'held', number)
end

-- Out of whichever queue or hold it is in; its record tells.
local function leave_queue(tx, record)
  if record.held then
    if redis.call('ZREM', prefix .. 'heldZ:' .. record.held, tx) == 1 then count_held(record.queue, record.group, -1) end
    redis.call('HDEL', state_key(tx), 'held')
  end
  if record.queue and record.group then
    redis.call('ZREM', queue_key(record.queue, record.group), tx)
    forget_turns(record.queue, record.group)
  end
end

-- It goes on: a worker of its group is to take it. `record` has group, owner and priority.
local function requeue(tx, record, queue, ...)
  redis.call('HSET', state_key(tx), 'state', 'queued', 'queue', queue, 'queued_ms', string.format('%.0f', now), ...)
  push(tx, queue, record.group, record.owner, tonumber(record.priority) or 5)
end
