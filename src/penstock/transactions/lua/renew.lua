-- uses: common statistics queues limits ending tending
-- A worker is still at work: its leases count from now. What became due meanwhile is seen to.
--
-- KEYS[1]     prefix of the partition
-- ARGV[1]     lease in ms
-- ARGV[2…]    tx, token, tx, token, …
-- Reply       {now, ms until something becomes due or -1, how many words wait in the outbox,
--              {tx that were lost, …}, {tx that somebody wants to end, …}}

local until_text = string.format('%.0f', now + tonumber(ARGV[1]))
local lost, unwanted = {}, {}
for place = 2, #ARGV, 2 do
  local tx = ARGV[place]
  local is_read, record = pcall(fields_of, tx, {'state', 'token', 'cancel'})
  if is_read and record.state == 'running' and record.token == ARGV[place + 1] then
    redis.call('ZADD', prefix .. 'leasesZ', until_text, tx)
    if record.cancel and record.cancel ~= '' then unwanted[#unwanted + 1] = tx end
  else
    lost[#lost + 1] = tx
  end
end
local left_ms = tend(100)
save_statistics()
return {now, left_ms, redis.call('LLEN', prefix .. 'outboxL'), lost, unwanted}
