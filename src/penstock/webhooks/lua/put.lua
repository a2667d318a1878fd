-- uses: common
-- Queue a delivery, once.
--
-- KEYS[1..10]  see common.lua
-- ARGV[1..3]   id, endpoint, event
-- ARGV[4]      payload
-- ARGV[5]      ms until it is due
-- ARGV[6]      max_in_flight of the endpoint
-- ARGV[7]      how many of its deliveries may be unfinished
-- ARGV[8]      topic to wake workers on
-- Reply        {1, delivery}: queued; {0, delivery}: it was there already, as it is now; {-1}: no room

local id, endpoint = ARGV[1], ARGV[2]
common.sweep()
local known = common.packed(id)
if known then return {0, known} end

local state = common.state(endpoint)
if state.waiting + state.in_flight >= tonumber(ARGV[7]) then return {-1} end
state.max_in_flight = tonumber(ARGV[6])
state.is_gone = nil

local delivery = {
  id = id, endpoint = endpoint, event = ARGV[3], attempts = 0, token = 0, losses = 0, replays = 0,
  created_ms = common.now,
}
redis.call('HSET', KEYS[2], id, ARGV[4])
common.wait(delivery, state, common.now + tonumber(ARGV[5]))
local packed = common.save(delivery)
common.save_state(endpoint, state, ARGV[8])
common.count('put')
return {1, packed}
