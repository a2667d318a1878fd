-- uses: common
-- Messages that were written with the end of a step, on their way to streams and channels.
--
-- KEYS[1]     prefix of the partition
-- ARGV[1]     take: who asks gets the oldest, if nobody else has them; done: those went out; leave
-- ARGV[2]     who asks
-- ARGV[3]     take: for how long (ms); done: how many messages
-- ARGV[4]     take: how many at most
-- Reply       take: {number, destination, payload, …}, or nothing if somebody else has them
--             done: 1, or 0 if somebody else has taken over: those messages will be sent again
-- Who sends again is recognised by the number: destinations take each number once.

-- Bytes of payloads in one reply, but for the last.
local MOST_BYTES = 4194304

local lock = prefix .. 'outboxLock'
local holder = redis.call('GET', lock)
if ARGV[1] == 'take' then
  if holder and holder ~= ARGV[2] then return {} end
  local found, bytes = {}, 0
  for place = 0, tonumber(ARGV[4]) - 1 do
    local entry = redis.call('LRANGE', prefix .. 'outboxL', 3 * place, 3 * place + 2)
    if #entry == 0 or bytes > MOST_BYTES then break end
    for _, word in ipairs(entry) do found[#found + 1] = word end
    bytes = bytes + #entry[3]
  end
  if #found > 0 then redis.call('SET', lock, ARGV[2], 'PX', ARGV[3]) elseif holder then redis.call('DEL', lock) end
  return found
end
if holder ~= ARGV[2] then return 0 end
if ARGV[1] == 'leave' then
  redis.call('DEL', lock)
else
  redis.call('LTRIM', prefix .. 'outboxL', 3 * tonumber(ARGV[3]), -1)
end
return 1
