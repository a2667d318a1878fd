-- uses: common
-- Reads what a subscriber has not acknowledged, oldest first, and renews its life.
--
-- KEYS[1]  the clock of the channel   KEYS[2]  the cursor   KEYS[3]  the mark of a nack
-- ARGV[1]  prefix of the channel's keys    ARGV[2]  ttl in seconds
-- ARGV[3]  most messages                   ARGV[4]  most bytes of bodies (one message always fits)
-- ARGV[5]  most expired messages to step over in one call
-- ARGV[6]  clock up to which bodies are unreadable and count as expired; '' if none are known
-- ARGV[7]  clock to read behind, if it is unread; '' to read behind the cursor
-- Reply    false without such a subscriber, else
--          {more, waiting time of a nack in ms, clock that was looked at last, clock, body, clock, body, …}
--          more: 0 nothing behind these, 1 there is, 2 ask again at once (ARGV[5] was reached)
--
-- Expired messages at the head never come back, so the cursor steps over them: they must not hide what
-- lies behind.

local CHUNK = 128

local last, cursor = common.read_both(KEYS[1], KEYS[2])
if not last then return false end
common.refresh(KEYS[1], KEYS[2], ARGV[2])
if last == cursor then return {0, 0, ''} end
local mark = common.read(KEYS[3]) -- may be left from an earlier subscriber of this name
if mark and common.is_unread(mark, cursor, last) then
  return {0, math.max(redis.call('PTTL', KEYS[3]), 1), ''}
end

local limit, room, may_step = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local found, reply, stepped, more = 0, {0, 0, ''}, 0, 0
local start = tonumber(ARGV[7])
if not start or not common.is_unread(start, cursor, last) then start = cursor end
local clock, left = start, common.distance(start, last)
-- Somebody else may have stepped over the unreadable ones meanwhile.
local is_readable = ARGV[6] == '' or not common.is_unread(tonumber(ARGV[6]), cursor, last)
local head -- the last expired clock before the first living message

while left > 0 and more == 0 do
  local keys, clocks = {}, {}
  -- One more than wanted tells whether there is more.
  for at = 1, math.min(left, CHUNK, limit - found + 1) do
    clock = common.following(clock)
    clocks[at] = common.text(clock)
    keys[at] = ARGV[1] .. 'm.' .. clocks[at]
  end
  left = left - #keys
  for at, body in ipairs(redis.call('MGET', unpack(keys))) do
    if not body or not is_readable then
      if found == 0 and start == cursor then head = clocks[at] end
      stepped = stepped + 1
      if clocks[at] == ARGV[6] then is_readable = true end
    elseif found == limit or (found > 0 and #body > room) then
      more = 1
      break
    else
      found, room = found + 1, room - #body
      reply[#reply + 1] = clocks[at]
      reply[#reply + 1] = body
    end
  end
  if more == 0 and stepped >= may_step and left > 0 then more = 2 end
end

if head then redis.call('SET', KEYS[2], head, 'KEEPTTL') end
reply[1], reply[3] = more, common.text(clock)
return reply
