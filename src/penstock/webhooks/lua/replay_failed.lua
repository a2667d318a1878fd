-- uses: common
-- Deliver again what has failed for good, the oldest first.
--
-- KEYS[1..10]  see common.lua
-- ARGV[1]      endpoint
-- ARGV[2]      finished since (ms)
-- ARGV[3]      how many at most
-- ARGV[4]      how many deliveries of the endpoint may be unfinished
-- ARGV[5]      topic to wake workers on
-- Reply        how many; fewer than asked for: no more are there, or there is no room for more

local endpoint = ARGV[1]
local state = common.state(endpoint)
local room = math.max(0, tonumber(ARGV[4]) - state.waiting - state.in_flight)
local found = common.all_dead(endpoint, state, tonumber(ARGV[2]), math.min(tonumber(ARGV[3]), room))
for _, delivery in ipairs(found) do
  common.revive(delivery, state)
  common.save(delivery)
end
if #found > 0 then common.save_state(endpoint, state, ARGV[5]) end
return #found
