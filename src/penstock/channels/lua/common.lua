-- Arithmetic of clocks and what every script of channels does. keys.py tells what the keys hold.

local MAX = 9007199254740991
local MIN = -MAX

local common = {}

-- A clock as it is stored: never in exponent form.
function common.text(clock)
  return string.format('%.0f', clock)
end

function common.following(clock)
  if clock == MAX then return MIN end
  return clock + 1
end

-- How many messages lie above `cursor`, up to `last`. (Exact while it is small, which is all that is compared.)
function common.distance(cursor, last)
  if last >= cursor then return last - cursor end
  return (MAX - cursor) + (last - MIN) + 1
end

function common.is_unread(clock, cursor, last)
  if cursor <= last then return clock > cursor and clock <= last end
  return clock > cursor or clock <= last
end

-- The clock under `key`; nil when there is none.
function common.read(key)
  local stored = redis.call('GET', key)
  if not stored then return nil end
  local clock = tonumber(stored)
  if not clock then error({err = 'CORRUPTCLOCK the value of ' .. key .. ' is not a clock'}) end
  return clock
end

-- Renews both keys when a second of their life has gone. (Not each time: reading alone should not write.)
function common.refresh(clock_key, cursor_key, ttl)
  local least = ttl * 1000 - 1000
  if redis.call('PTTL', cursor_key) < least or redis.call('PTTL', clock_key) < least then
    redis.call('EXPIRE', clock_key, ttl)
    redis.call('EXPIRE', cursor_key, ttl)
  end
end

-- Who waits for the channel looks again. A server that forbids PUBLISH must not fail what was done.
function common.wake(topic)
  redis.pcall('PUBLISH', topic, 'new message')
end
