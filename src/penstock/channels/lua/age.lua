-- uses: common
-- Tells which messages a subscriber will not get (again): acknowledged, or published before it began.
--
-- KEYS[1]  the clock of the channel   KEYS[2]  the cursor
-- ARGV[1]  prefix of the channel's keys    ARGV[2…] ids
-- Reply    false without such a subscriber, else a list: the clock of an old message, '' for any other

local last, cursor = common.read_both(KEYS[1], KEYS[2])
if not last then return false end
local reply = {}
for at = 2, #ARGV do
  local known = redis.call('GET', ARGV[1] .. 'mid.' .. ARGV[at])
  local is_old = known and not common.is_unread(tonumber(known), cursor, last)
  reply[at - 1] = is_old and known or ''
end
return reply
