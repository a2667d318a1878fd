-- uses: common
-- Deliver something again that is finished, or now what waits for later.
--
-- KEYS[1..10]  see common.lua
-- ARGV[1]      id
-- ARGV[2]      topic to wake workers on
-- Reply        {1, delivery}; {0, delivery}: it is being sent right now; {-1}: unknown

local delivery = common.delivery(ARGV[1])
if not delivery then return {-1} end
if delivery.status == 'leased' then return {0, cmsgpack.pack(delivery)} end
local state = common.state(delivery.endpoint)
if delivery.status == 'waiting' then
  common.unwait(delivery, state)
  common.wait(delivery, state, math.min(delivery.due_ms, common.now))
else
  common.revive(delivery, state)
end
local packed = common.save(delivery)
common.save_state(delivery.endpoint, state, ARGV[2])
return {1, packed}
