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

-- The clock of the channel and the cursor of a subscriber; nil without such a subscriber. A cursor from which
-- half of all clocks would be unread is left from a channel of the same name that is gone.
function common.read_both(clock_key, cursor_key)
  local last, cursor = common.read(clock_key), common.read(cursor_key)
  if not last or not cursor or common.distance(cursor, last) > MAX then return nil end
  return last, cursor
end

-- Whether a clock still belongs to the message that a receipt names. A channel that expired and was made again
-- counts from the start: then the id knows another clock, or none while there is a body.
function common.is_same(id_key, body_key, clock)
  local known = redis.call('GET', id_key)
  if known then return known == clock end
  return redis.call('EXISTS', body_key) == 0
end

-- Renews the life of the clock and never shortens it: cursors may have been promised a longer one, and a channel
-- that counts from the start under them would look like one that went round.
function common.prolong(clock_key, ttl)
  if redis.call('PTTL', clock_key) < ttl * 1000 then redis.call('EXPIRE', clock_key, ttl) end
end

-- Renews both keys when a second of their life has gone. (Not each time: reading alone should not write.)
function common.refresh(clock_key, cursor_key, ttl)
  local least = ttl * 1000 - 1000
  if redis.call('PTTL', cursor_key) < least or redis.call('PTTL', clock_key) < least then
    common.prolong(clock_key, ttl)
    redis.call('EXPIRE', cursor_key, ttl)
  end
end

-- Who waits for the channel looks again. A server that forbids PUBLISH must not fail what was done.
function common.wake(topic)
  redis.pcall('PUBLISH', topic, 'new message')
end
