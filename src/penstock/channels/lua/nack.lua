-- uses: common
-- Gives a batch back: the subscriber gets nothing until the delay has passed, then the same again.
--
-- KEYS[1]  the clock of the channel   KEYS[2]  the cursor     KEYS[3]  the mark of a nack
-- KEYS[4]  the id of the message      KEYS[5]  its body
-- ARGV[1]  clock of the last message that is given back     ARGV[2]  delay in ms (0: at once)
-- ARGV[3]  topic that wakes waiting fetches
-- Reply    1 given back, 0 stale (nothing changes), -1 no such subscriber

local last, cursor = common.read_both(KEYS[1], KEYS[2])
if not last then return -1 end
if not common.is_unread(tonumber(ARGV[1]), cursor, last) then return 0 end
if not common.is_same(KEYS[4], KEYS[5], ARGV[1]) then return 0 end
if tonumber(ARGV[2]) > 0 then
  redis.call('SET', KEYS[3], ARGV[1], 'PX', ARGV[2])
else
  redis.call('DEL', KEYS[3])
  common.wake(ARGV[3])
end
return 1
