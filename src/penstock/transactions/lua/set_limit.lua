-- uses: common statistics queues limits
-- Set a limit, or take it away.
--
-- KEYS[1]     prefix of the partition
-- ARGV[1]     p:<pipeline>, o:<owner>, or g:<group>
-- ARGV[2]     `<paused> <concurrency> <rate> <burst> <max queued>` (limits.lua), '' for no limit
-- Reply       1 if that changed something
-- Whoever is held is looked at by the next worker that comes by: at once, since the topic wakes them.

local name = ARGV[1]
if (redis.call('HGET', prefix .. 'limitsH', name) or '') == ARGV[2] then return 0 end
if ARGV[2] == '' then
  redis.call('HDEL', prefix .. 'limitsH', name)
  redis.call('HDEL', prefix .. 'bucketH', name)
else
  redis.call('HSET', prefix .. 'limitsH', name, ARGV[2])
end
if name:sub(1, 2) == 'g:' then
  redis.call('PUBLISH', 'tx.work.' .. name:sub(3), prefix)
else
  redis.call('ZADD', prefix .. 'releaseZ', string.format('%.0f', now), name)
  redis.call('PUBLISH', 'tx.agenda', prefix)
end
return 1
