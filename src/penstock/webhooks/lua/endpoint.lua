-- uses: common
-- Change what is known of an endpoint, apart from what its owner defines.
--
-- KEYS[1..10]  see common.lua
-- ARGV[1]      endpoint
-- ARGV[2]      disable: nothing is sent, what waits is kept. enable: everything is forgiven.
--              limit: set max_in_flight
-- ARGV[3]      why it is disabled; or max_in_flight
-- ARGV[4]      topic to wake workers on
-- Reply        1 if that changed something

local endpoint, wish = ARGV[1], ARGV[2]
local state = common.state(endpoint)
if wish == 'disable' then
  if state.disabled then return 0 end
  state.disabled, state.disabled_ms = ARGV[3], common.now
elseif wish == 'enable' then
  if not state.disabled and state.opened == 0 and state.hold_ms <= common.now then return 0 end
  state.disabled, state.disabled_ms = nil, nil
  state.failures, state.opened, state.hold_ms, state.failing_ms = 0, 0, 0, 0
  state.epoch = state.epoch + 1
else
  if state.max_in_flight == tonumber(ARGV[3]) then return 0 end
  state.max_in_flight = tonumber(ARGV[3])
end
common.save_state(endpoint, state, ARGV[4])
return 1
