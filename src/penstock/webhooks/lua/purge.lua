-- uses: common
-- Forget an endpoint: what waits for it, what has failed, its log, and in the end its state.
--
-- What is being sent right now comes back to be settled; workers find no endpoint for it then.
--
-- KEYS[1..10]  see common.lua
-- ARGV[1]      endpoint
-- ARGV[2]      how many of each at most
-- Reply        how many deliveries and entries went; 0: nothing is left

local endpoint, most = ARGV[1], tonumber(ARGV[2])
local state = common.state(endpoint)
local gone = 0
for _, delivery in ipairs(common.all_waiting(endpoint, state, most)) do
  common.unwait(delivery, state)
  common.forget(delivery.id)
  gone = gone + 1
end
for _, delivery in ipairs(common.all_dead(endpoint, state, 0, most)) do
  common.unfinish(delivery)
  common.forget(delivery.id)
  gone = gone + 1
end
local last = math.min(state.log_next, state.log_first + most) - 1
for number = state.log_first, last do
  redis.call('HDEL', KEYS[9], endpoint .. ' ' .. number)
  gone = gone + 1
end
state.log_first = last + 1
state.is_gone = true
common.save_state(endpoint, state, nil)
return gone
