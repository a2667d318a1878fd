-- uses: common
-- Ends a subscriber; a fetch that waits for it is told.
--
-- KEYS[1]  the cursor   KEYS[2]  the mark of a nack
-- ARGV[1]  topic that wakes waiting fetches
-- Reply    1 removed, 0 there was none

local removed = redis.call('DEL', KEYS[1])
redis.call('DEL', KEYS[2])
if removed == 1 then common.wake(ARGV[1]) end
return removed
