-- uses: common
-- Moves a subscriber up to a message that it was given.
--
-- KEYS[1]  the clock of the channel   KEYS[2]  the cursor     KEYS[3]  the mark of a nack
-- KEYS[4]  the id of the message      KEYS[5]  its body
-- ARGV[1]  ttl in seconds             ARGV[2]  clock of the message
-- Reply    1 moved, 0 stale (nothing changes), -1 no such subscriber
--
-- A channel that expired and was made again counts from the start, so that an old receipt may name the clock of
-- another message: then the id knows another clock, or none while the body is there.

local last, cursor = common.read(KEYS[1]), common.read(KEYS[2])
if not last or not cursor then return -1 end
local clock = tonumber(ARGV[2])
if not common.is_unread(clock, cursor, last) then return 0 end
local known = redis.call('GET', KEYS[4])
if known then
  if known ~= ARGV[2] then return 0 end
elseif redis.call('EXISTS', KEYS[5]) == 1 then
  return 0
end
redis.call('SET', KEYS[2], ARGV[2], 'EX', ARGV[1])
redis.call('EXPIRE', KEYS[1], ARGV[1])
redis.call('DEL', KEYS[3])
return 1
