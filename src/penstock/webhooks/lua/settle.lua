-- uses: common
-- What became of a delivery that somebody had under a lease. Who has lost the lease changes nothing.
--
-- KEYS[1..10]  see common.lua
-- ARGV[1..2]   id, fencing token
-- ARGV[3]      msgpack map:
--                outcome       done, retry, dead, disable (the delivery is dead and its endpoint off),
--                              release (nothing was sent: back into the line, no attempt is counted)
--                delay_ms      until the next attempt, for retry and release
--                hold_ms       how long nothing is to be sent to the endpoint; 0: no matter
--                health        up, down, or unknown: what the attempt says about the endpoint
--                reason        why it is dead or the endpoint off
--                code, error, duration_ms, excerpt   of the attempt, for the log; each may be missing
--                failures, open_ms, max_open_ms      the breaker: it opens after so many failures in a row,
--                              for open_ms, and for twice as long each time that a probe fails
--                disable_after_ms  disable the endpoint when nothing has succeeded for so long; 0: never
--                retention_ms  how long it is kept when finished
--                max_log       entries that the log of an endpoint keeps
-- ARGV[4]      topic to wake workers on
-- Reply        {1, delivery, why the endpoint was disabled by this or ''}; {0}: the lease was lost

local settled = cmsgpack.unpack(ARGV[3])
local delivery = common.delivery(ARGV[1])
if not delivery or delivery.status ~= 'leased' or delivery.token ~= tonumber(ARGV[2]) then return {0} end
local endpoint = delivery.endpoint
local state = common.state(endpoint)
local disabled = ''

local function disable(why)
  if state.disabled then return end
  state.disabled, state.disabled_ms, disabled = why, common.now, why
end

-- The same table as breaker.py has, for all processes: open is opened > 0 until hold_ms, then half-open.
local function judge_health()
  if settled.health == 'up' then
    state.ok_ms, state.failing_ms = common.now, 0
    if delivery.epoch == state.epoch then state.failures, state.opened = 0, 0 end
  elseif settled.health == 'down' then
    if state.failing_ms == 0 then state.failing_ms = common.now end
    local long = settled.disable_after_ms
    if long > 0 and common.now - state.failing_ms >= long then
      disable('nothing has succeeded for ' .. math.floor(long / 1000) .. ' s')
    end
    -- What was sent before the breaker opened says nothing about the time after.
    if delivery.epoch ~= state.epoch then return end
    state.failures = state.failures + 1
    if state.opened > 0 or state.failures >= settled.failures then
      local open_ms = math.min(settled.open_ms * 2 ^ math.min(state.opened, 30), settled.max_open_ms)
      state.opened = state.opened + 1
      state.epoch = state.epoch + 1
      state.hold_ms = math.max(state.hold_ms, common.now + open_ms)
    end
  end
end

common.unlease(delivery, state)
if settled.outcome == 'release' then
  common.wait(delivery, state, common.now + settled.delay_ms)
else
  delivery.attempts = delivery.attempts + 1
  delivery.code, delivery.error = settled.code, settled.error
  judge_health()
  if settled.hold_ms > 0 then state.hold_ms = math.max(state.hold_ms, common.now + settled.hold_ms) end
  common.write_log(endpoint, state, {
    delivery = delivery.id, event = delivery.event, attempt = delivery.attempts, outcome = settled.outcome,
    code = settled.code, error = settled.error, duration_ms = settled.duration_ms or 0,
    excerpt = settled.excerpt,
  }, settled.max_log)
  common.count('attempts')
  if settled.outcome == 'retry' then
    common.wait(delivery, state, common.now + settled.delay_ms)
  elseif settled.outcome == 'done' then
    common.finish(delivery, state, 'done', settled.retention_ms)
  else
    delivery.reason = settled.reason
    common.finish(delivery, state, 'dead', settled.retention_ms)
    if settled.outcome == 'disable' then disable(settled.reason) end
  end
end
local packed = common.save(delivery)
common.save_state(endpoint, state, ARGV[4])
common.sweep()
return {1, packed, disabled}
