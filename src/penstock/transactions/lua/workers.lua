-- Which workers are alive, and how many transactions at a time people wish a node group's workers to take.
--
-- KEYS[1]  {tx}.workersH   hash: worker -> JSON of what it says about itself
-- KEYS[2]  {tx}.workersZ   sorted set: worker -> until when it counts as alive (ms)
-- KEYS[3]  {tx}.wishesH    hash: node group -> wished concurrency of each of its workers
-- ARGV[1]  verb, then
--   announce <worker> <JSON> <ms it counts as alive> <most workers>
--                    1; 0 if there are too many already
--   forget <worker>  1 if it was there
--   list             {JSON, …} of those who are alive
--   wish <group> <number, '' for none>
--                    1 if that changed something; the topic tx.wishes tells the group
-- Workers that fell silent are dropped by whoever comes next.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function drop(workers)
  for _, worker in ipairs(workers) do
    redis.call('HDEL', KEYS[1], worker)
    redis.call('ZREM', KEYS[2], worker)
  end
  return #workers
end

local function drop_silent()
  drop(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', string.format('%.0f', now), 'LIMIT', 0, 1000))
end

local VERBS = {}

function VERBS.announce(worker, info, ttl_ms, most)
  drop_silent()
  local is_known = redis.call('HEXISTS', KEYS[1], worker) == 1
  if not is_known and redis.call('HLEN', KEYS[1]) >= tonumber(most) then return 0 end
  redis.call('HSET', KEYS[1], worker, info)
  redis.call('ZADD', KEYS[2], string.format('%.0f', now + tonumber(ttl_ms)), worker)
  return 1
end

function VERBS.forget(worker)
  if redis.call('HEXISTS', KEYS[1], worker) == 0 then return 0 end
  return drop({worker})
end

function VERBS.list()
  drop_silent()
  return redis.call('HVALS', KEYS[1])
end

function VERBS.wish(group, number)
  if (redis.call('HGET', KEYS[3], group) or '') == number then return 0 end
  if number == '' then
    redis.call('HDEL', KEYS[3], group)
  else
    redis.call('HSET', KEYS[3], group, number)
  end
  redis.call('PUBLISH', 'tx.wishes', group)
  return 1
end

return VERBS[ARGV[1]](unpack(ARGV, 2, 5))
