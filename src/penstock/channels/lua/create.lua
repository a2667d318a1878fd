-- uses: common
-- Makes a subscriber that starts behind the last message of now; one that exists is left where it is.
--
-- KEYS[1]  the clock of the channel   KEYS[2]  the cursor of the subscriber
-- ARGV[1]  ttl in seconds
-- Reply    1 made, 0 it existed

local is_known = common.read_both(KEYS[1], KEYS[2])
if not redis.call('SET', KEYS[1], '0', 'EX', ARGV[1], 'NX') then common.prolong(KEYS[1], ARGV[1]) end
if is_known then return 0 end
redis.call('SET', KEYS[2], redis.call('GET', KEYS[1]), 'EX', ARGV[1])
return 1
