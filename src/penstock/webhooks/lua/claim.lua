-- uses: common
-- Take deliveries that are due, under a lease; first take back those whose workers are dead.
--
-- Endpoints take turns: each gets its share of `limit`, and what is left over goes round again.
--
-- KEYS[1..10]  see common.lua
-- ARGV[1]      limit
-- ARGV[2]      lease in ms
-- ARGV[3]      entries that the log of an endpoint keeps
-- ARGV[4]      topic to wake workers on
-- Reply        {now, when to ask again in ms or -1 (not before somebody says so), delivery, payload, …}

-- Leases taken back, and endpoints looked at, in one call. More of them make the next call due at once.
local MOST_LEASES, MOST_ENDPOINTS = 100, 200
-- A reply ends with the payload that makes it larger than this.
local MOST_BYTES = 16 * 1024 * 1024
-- Old deliveries alone are no reason to wake up more often.
local SWEEP_PAUSE_MS = 60000

local limit, lease_ms = tonumber(ARGV[1]), tonumber(ARGV[2])
local reply = {common.now, -1}
local bytes = 0

local function take_back(id)
  local delivery = common.delivery(id)
  if not delivery then
    redis.call('ZREM', KEYS[5], id)
    return
  end
  local state = common.state(delivery.endpoint)
  common.unlease(delivery, state)
  delivery.losses = delivery.losses + 1
  common.write_log(delivery.endpoint, state, {
    delivery = id, event = delivery.event, attempt = delivery.attempts + 1, outcome = 'lost',
    error = 'the worker did not answer for it any more', duration_ms = 0,
  }, tonumber(ARGV[3]))
  common.wait(delivery, state, common.now)
  common.save(delivery)
  common.save_state(delivery.endpoint, state, ARGV[4])
  common.count('lost')
end

-- Up to `most` of one endpoint; answers how many. Saves nothing of the state.
local function take(endpoint, state, most)
  local taken = 0
  for _, delivery in ipairs(common.due(endpoint, state, math.min(most, common.room(state)))) do
    if bytes >= MOST_BYTES then break end
    local payload = redis.call('HGET', KEYS[2], delivery.id)
    if payload then
      common.lease(delivery, state, lease_ms)
      reply[#reply + 1] = common.save(delivery)
      reply[#reply + 1] = payload
      bytes = bytes + #payload
      taken = taken + 1
    else
      common.unwait(delivery, state)
      common.forget(delivery.id)
    end
  end
  state.served_ms = common.now
  return taken
end

common.sweep()
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', common.now, 'LIMIT', 0, MOST_LEASES)) do
  take_back(id)
end

local names = redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', common.now, 'LIMIT', 0, MOST_ENDPOINTS)
local found = {}
for _, share in ipairs({math.max(1, math.floor(limit / math.max(1, #names))), limit}) do
  for _, name in ipairs(names) do
    if limit == 0 or bytes >= MOST_BYTES then break end
    found[name] = found[name] or common.state(name)
    limit = limit - take(name, found[name], math.min(share, limit))
  end
end
-- Whoever takes part of it goes on asking, or is busy: no need to wake others for the rest, they were woken.
for name, state in pairs(found) do common.save_state(name, state, nil) end

local sweep_ms = common.first_score(KEYS[8])
for _, at in ipairs({
  common.first_score(KEYS[4]) or -1, common.first_score(KEYS[5]) or -1,
  sweep_ms and math.max(sweep_ms, common.now + SWEEP_PAUSE_MS) or -1,
}) do
  if at >= 0 and (reply[2] < 0 or at < reply[2]) then reply[2] = at end
end
return reply
