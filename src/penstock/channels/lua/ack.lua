-- uses: common
-- Moves a subscriber up to a message that it was given.
--
-- KEYS[1]  the clock of the channel   KEYS[2]  the cursor     KEYS[3]  the mark of a nack
-- KEYS[4]  the id of the message      KEYS[5]  its body
-- ARGV[1]  ttl in seconds             ARGV[2]  clock of the message
-- Reply    1 moved, 0 stale (nothing changes), -1 no such subscriber

local last, cursor = common.read_both(KEYS[1], KEYS[2])
if not last then return -1 end
if not common.is_unread(tonumber(ARGV[2]), cursor, last) then return 0 end
if not common.is_same(KEYS[4], KEYS[5], ARGV[2]) then return 0 end
redis.call('SET', KEYS[2], ARGV[2], 'EX', ARGV[1])
common.prolong(KEYS[1], ARGV[1])
redis.call('DEL', KEYS[3])
return 1
