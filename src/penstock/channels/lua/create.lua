-- uses: common
-- Makes a subscriber that starts behind the last message of now; one that exists is left where it is.
--
-- KEYS[1]  the clock of the channel   KEYS[2]  the cursor of the subscriber
-- ARGV[1]  ttl in seconds
-- Reply    1 made, 0 it existed

local clock = common.read(KEYS[1])
if not clock then clock = 0 end
redis.call('SET', KEYS[1], common.text(clock), 'EX', ARGV[1])
return redis.call('SET', KEYS[2], common.text(clock), 'EX', ARGV[1], 'NX') and 1 or 0
