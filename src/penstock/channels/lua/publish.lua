-- Appends messages to a channel, each id once.
--
-- KEYS[1]  the clock of the channel; the other keys are its siblings, in the same slot
-- ARGV[1]  prefix of the channel's keys        ARGV[2]  ttl in seconds
-- ARGV[3]  topic that wakes waiting fetches    ARGV[4]  name of the channel if webhooks want the new messages
--                                              (key `out`, as clock and body), else ''
-- ARGV[5…] id, content, id, content, …
-- Reply    a list: 1 for each message that is new, 0 for a duplicate
--
-- Does without common.lua, and makes few calls: this is the path that everybody waits for.

local MAX = 9007199254740991
local prefix, ttl = ARGV[1], ARGV[2]
local count = (#ARGV - 4) / 2

-- As if all were new and the clock did not wrap, which is nearly always so; put right below if not.
local last = redis.pcall('INCRBY', KEYS[1], count)
if type(last) == 'table' then return {err = 'CORRUPTCLOCK the value of ' .. KEYS[1] .. ' is not a clock'} end
local clock = last <= MAX and last - count or redis.call('DECRBY', KEYS[1], count)

local reply, is_new = {}, false
for at = 5, #ARGV, 2 do
  local id = ARGV[at]
  local following = clock == MAX and -MAX or clock + 1
  local text = string.format('%.0f', following)
  if redis.call('SET', prefix .. 'mid.' .. id, text, 'EX', ttl, 'NX') then
    local body = '{"id":"' .. id .. '","content":' .. ARGV[at + 1] .. '}'
    redis.call('SET', prefix .. 'm.' .. text, body, 'EX', ttl)
    if ARGV[4] ~= '' then redis.call('RPUSH', prefix .. 'out', text .. ' ' .. body) end
    clock, is_new = following, true
    reply[#reply + 1] = 1
  else
    reply[#reply + 1] = 0
  end
end

if clock ~= last then redis.call('SET', KEYS[1], string.format('%.0f', clock), 'KEEPTTL') end
-- The life of the clock is never shortened (common.prolong), and renewed when a second of it has gone.
if redis.call('PTTL', KEYS[1]) < ttl * 1000 - 1000 then redis.call('EXPIRE', KEYS[1], ttl) end
if is_new then
  redis.pcall('PUBLISH', ARGV[3], 'new message')
  if ARGV[4] ~= '' then redis.pcall('PUBLISH', 'channels.outboxes', ARGV[4]) end
end
return reply
