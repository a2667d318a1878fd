-- uses: common
-- Reads unread messages from anywhere and changes nothing, not even how long things live.
--
-- KEYS[1]  the clock of the channel   KEYS[2]  the cursor
-- ARGV[1]  prefix of the channel's keys
-- ARGV[2]  clock behind which to begin; '' for the cursor, which is also the least
-- ARGV[3]  most messages              ARGV[4]  most clocks to look at
-- ARGV[5]  most bytes of bodies (one message always fits)
-- Reply    false without such a subscriber, else
--          {more (0 or 1), clock to go on behind, how many clocks are unread, clock, body, …}

local last, cursor = common.read_both(KEYS[1], KEYS[2])
if not last then return false end
local clock = tonumber(ARGV[2]) or cursor
if not common.is_unread(clock, cursor, last) then clock = cursor end

local limit, may_step, room = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local left, seen, found = common.distance(clock, last), 0, 0
local reply = {0, common.text(clock), common.text(common.distance(cursor, last))}
while left > 0 and found < limit and seen < may_step do
  clock, left, seen = common.following(clock), left - 1, seen + 1
  local text = common.text(clock)
  local body = redis.call('MGET', ARGV[1] .. 'm.' .. text)[1] -- nothing, too, if it is no string
  if body then
    if found > 0 and #body > room then left = left + 1 break end
    found, room = found + 1, room - #body
    reply[#reply + 1] = text
    reply[#reply + 1] = body
  end
  reply[2] = text
end
reply[1] = left > 0 and 1 or 0
return reply
