-- What all scripts of webhooks share: records, the state of endpoints, the agenda, the log.
--
-- Keys, all in one slot (keys.py derives their names). Every script gets all of them, in this order:
--   1 deliveries  hash: id -> delivery (msgpack map, see below)
--   2 payloads    hash: id -> headers and body, as the caller has packed them; no script looks inside
--   3 waiting     sorted set, scores 0: `<endpoint> <due ms, 16 digits> <id>` of each waiting delivery
--   4 agenda      sorted set: endpoint -> when it has something to send next (ms). Not in it: endpoints that
--                 are disabled, have nothing waiting, or have as many deliveries in flight as they may
--   5 leases      sorted set: id -> when its worker counts as dead (ms)
--   6 states      hash: endpoint -> state (msgpack map, see below)
--   7 dead        sorted set, scores 0: `<endpoint> <finished ms, 16 digits> <id>` of each dead delivery
--   8 finished    sorted set: id -> when it is to be forgotten (ms); delivered and dead ones
--   9 log         hash: `<endpoint> <number>` -> entry (msgpack map); numbers count up without gaps
--  10 counters    hash: token (the last fencing token), put, delivered, dead, attempts, lost, replayed
--
-- A delivery: id, endpoint, event; status (waiting, leased, done, dead); attempts; token of its last lease;
--   created_ms, due_ms, lease_ms (until when), finished_ms; losses (leases that ran out), replays; epoch (of
--   the breaker, when it was claimed); code and error of the last attempt; reason (why it is dead).
-- A state: in_flight, waiting (counts); max_in_flight; served_ms (when it was last given work); hold_ms (until
--   when nothing is sent); failures (in a row), opened (times in a row that the breaker opened), epoch (of the
--   breaker); failing_ms (since when nothing succeeded), ok_ms (last success); delivered, dead (counts);
--   disabled (why), disabled_ms; log_first, log_next (numbers); is_gone (the endpoint was deleted).
--
-- An endpoint's name has no space, so `<name> ` begins the rows of that endpoint and of no other.
--
-- A server that evicts keys for want of memory can take any of them away. What is left of a delivery is removed
-- when it is met, so that it does not stop the others.

local common = {}

local deliveries, payloads, waiting, agenda, leases = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local states, dead, finished, log, counters = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
-- Finished deliveries that one call forgets at most.
local SWEPT = 50

local time = redis.call('TIME')
common.now = time[1] * 1000 + math.floor(time[2] / 1000)

function common.wide(number)
  return string.format('%016.0f', number)
end

local function row(endpoint, ms, id)
  return endpoint .. ' ' .. common.wide(ms) .. ' ' .. id
end

function common.count(name)
  redis.call('HINCRBY', counters, name, 1)
end

function common.new_token()
  return redis.call('HINCRBY', counters, 'token', 1)
end

-- ---------------------------------------------------------------------------------------- deliveries

function common.packed(id)
  return redis.call('HGET', deliveries, id)
end

function common.delivery(id)
  local packed = common.packed(id)
  return packed and cmsgpack.unpack(packed)
end

-- Keep it; answers its bytes.
function common.save(delivery)
  local packed = cmsgpack.pack(delivery)
  redis.call('HSET', deliveries, delivery.id, packed)
  return packed
end

function common.forget(id)
  redis.call('HDEL', deliveries, id)
  redis.call('HDEL', payloads, id)
  redis.call('ZREM', finished, id)
end

-- Put it in line; it must be in none of the other places any more.
function common.wait(delivery, state, due_ms)
  delivery.status = 'waiting'
  delivery.due_ms = due_ms
  delivery.lease_ms = nil
  redis.call('ZADD', waiting, 0, row(delivery.endpoint, due_ms, delivery.id))
  state.waiting = state.waiting + 1
end

function common.unwait(delivery, state)
  redis.call('ZREM', waiting, row(delivery.endpoint, delivery.due_ms, delivery.id))
  state.waiting = math.max(0, state.waiting - 1)
end

function common.lease(delivery, state, lease_ms)
  common.unwait(delivery, state)
  delivery.status = 'leased'
  delivery.token = common.new_token()
  delivery.lease_ms = common.now + lease_ms
  delivery.epoch = state.epoch
  redis.call('ZADD', leases, delivery.lease_ms, delivery.id)
  state.in_flight = state.in_flight + 1
end

function common.unlease(delivery, state)
  redis.call('ZREM', leases, delivery.id)
  delivery.lease_ms = nil
  state.in_flight = math.max(0, state.in_flight - 1)
end

-- `status` is done or dead.
function common.finish(delivery, state, status, retention_ms)
  delivery.status = status
  delivery.finished_ms = common.now
  redis.call('ZADD', finished, common.now + retention_ms, delivery.id)
  if status == 'dead' then
    redis.call('ZADD', dead, 0, row(delivery.endpoint, common.now, delivery.id))
    state.dead = state.dead + 1
    common.count('dead')
  else
    state.delivered = state.delivered + 1
    common.count('delivered')
  end
end

-- Take a finished delivery out of the places of the finished.
function common.unfinish(delivery)
  redis.call('ZREM', finished, delivery.id)
  if delivery.status == 'dead' then
    redis.call('ZREM', dead, row(delivery.endpoint, delivery.finished_ms, delivery.id))
  end
  delivery.finished_ms = nil
  delivery.reason = nil
end

-- From the beginning: all attempts of its schedule are before it again.
function common.revive(delivery, state)
  common.unfinish(delivery)
  delivery.attempts = 0
  delivery.replays = delivery.replays + 1
  common.wait(delivery, state, common.now)
  common.count('replayed')
end

-- Forget what was finished long ago, a little at a time.
function common.sweep()
  local old = redis.call('ZRANGEBYSCORE', finished, '-inf', common.now, 'LIMIT', 0, SWEPT)
  for _, id in ipairs(old) do
    local delivery = common.delivery(id)
    if delivery then common.unfinish(delivery) end
    common.forget(id)
  end
end

-- The deliveries in `place` (waiting or dead) from row to row.
local function found_in(place, first, last, count, state)
  local found = {}
  for _, place_row in ipairs(redis.call('ZRANGEBYLEX', place, first, last, 'LIMIT', 0, count)) do
    local delivery = common.delivery(place_row:match('([^ ]+)$'))
    if delivery then
      found[#found + 1] = delivery
    else
      redis.call('ZREM', place, place_row)
      if place == waiting then state.waiting = math.max(0, state.waiting - 1) end
    end
  end
  return found
end

function common.due(endpoint, state, count)
  local last = '(' .. row(endpoint, common.now, '~')
  return found_in(waiting, '[' .. endpoint .. ' ', last, count, state)
end

function common.all_waiting(endpoint, state, count)
  return found_in(waiting, '[' .. endpoint .. ' ', '(' .. endpoint .. '!', count, state)
end

function common.all_dead(endpoint, state, since_ms, count)
  local first = '[' .. endpoint .. ' ' .. common.wide(since_ms)
  return found_in(dead, first, '(' .. endpoint .. '!', count, state)
end

-- ---------------------------------------------------------------------------------------- endpoints

function common.state(endpoint)
  local packed = redis.call('HGET', states, endpoint)
  if packed then return cmsgpack.unpack(packed) end
  return {
    in_flight = 0, waiting = 0, max_in_flight = 1, served_ms = 0, hold_ms = 0, failures = 0, opened = 0,
    epoch = 0, failing_ms = 0, ok_ms = 0, delivered = 0, dead = 0, log_first = 1, log_next = 1,
  }
end

-- While the breaker has not closed again, one delivery at a time finds out whether it may.
function common.room(state)
  return math.max(0, (state.opened > 0 and 1 or state.max_in_flight) - state.in_flight)
end

local function next_ms(endpoint, state)
  if state.disabled or common.room(state) == 0 then return nil end
  local first = redis.call(
    'ZRANGEBYLEX', waiting, '[' .. endpoint .. ' ', '(' .. endpoint .. '!', 'LIMIT', 0, 1)[1]
  if not first then return nil end
  -- Whoever was served goes behind those who wait since before that.
  return math.max(tonumber(first:sub(#endpoint + 2, #endpoint + 17)), state.hold_ms, state.served_ms)
end

-- The smallest score of a sorted set, or nil.
function common.first_score(key)
  local first = redis.call('ZRANGE', key, 0, 0)[1]
  return first and tonumber(redis.call('ZSCORE', key, first))
end

-- Keep the state, and see when the endpoint is to be looked at. Workers sleep until the first entry of the
-- agenda, so they are told when there is an earlier one.
function common.save_state(endpoint, state, topic)
  if state.is_gone and state.waiting == 0 and state.in_flight == 0 then
    for number = state.log_first, state.log_next - 1 do
      redis.call('HDEL', log, endpoint .. ' ' .. number)
    end
    redis.call('HDEL', states, endpoint)
    redis.call('ZREM', agenda, endpoint)
    return
  end
  redis.call('HSET', states, endpoint, cmsgpack.pack(state))
  local at = next_ms(endpoint, state)
  if not at then
    redis.call('ZREM', agenda, endpoint)
    return
  end
  local before = common.first_score(agenda)
  redis.call('ZADD', agenda, at, endpoint)
  if topic and (not before or at < before) then redis.call('PUBLISH', topic, common.wide(at)) end
end

-- ----------------------------------------------------------------------------------------------- log

-- Add an entry, and drop the oldest ones beyond `most`.
function common.write_log(endpoint, state, entry, most)
  entry.number = state.log_next
  entry.at_ms = common.now
  redis.call('HSET', log, endpoint .. ' ' .. entry.number, cmsgpack.pack(entry))
  state.log_next = state.log_next + 1
  while state.log_next - state.log_first > most do
    redis.call('HDEL', log, endpoint .. ' ' .. state.log_first)
    state.log_first = state.log_first + 1
  end
end
